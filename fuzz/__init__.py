"""The fuzzer: hostile command lines, damaged files and faults, thousands of them, each judged (see CONTRIBUTING.md)."""
