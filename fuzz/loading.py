"""Loading, once, what the cases share."""

import contextlib
import gc

_QUICK = ("sottovoce.cli", "sottovoce.data", "sottovoce.config")
_LATER = (
    *(
        "torch.utils.tensorboard",
        "tensorboard.compat",
        "matplotlib.backends.backend_agg",
        "matplotlib.backends.backend_svg",
    ),
    *(
        "PIL.PngImagePlugin",
        "rich.markdown",
        "rich.traceback",
        "yaml",
        "jiwer",
        "soxr",
        "num2words",
        "unidecode",
        "gzip",
    ),
    *("safetensors.torch", "dp_accounting.pld", "opacus.accountants.analysis", "scipy.optimize", "scipy.special"),
)


def load_everything(*, quick: bool) -> None:
    """Import what any command imports, or any quick one, so that no case has to."""
    import encodings
    import pkgutil
    from importlib import import_module

    import sottovoce

    for module in pkgutil.walk_packages(sottovoce.__path__, "sottovoce."):
        if not module.name.endswith("__main__") and (not quick or module.name.startswith(_QUICK)):
            with contextlib.suppress(ImportError):
                import_module(module.name)
    if not quick:
        for bench in import_module("sottovoce.bench.preset").bench_names():  # kept once they are read
            import_module("sottovoce.bench.preset").load_bench(bench)
    # The unprivileged user may not be able to read the interpreter's own modules later.
    others = [f"encodings.{module.name}" for module in pkgutil.iter_modules(encodings.__path__)]
    for name in (*others, *(() if quick else _LATER)):
        with contextlib.suppress(ImportError, LookupError):
            import_module(name)
    gc.freeze()  # forks then share more memory
