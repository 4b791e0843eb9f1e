"""sotto privacy: what epsilon, for which population, and what the ledger proves. The list of its commands."""

from typing import Final

import typer

from sottovoce.cli.audit import audit
from sottovoce.cli.boundary import neighbours, publish
from sottovoce.cli.population_ledger import population
from sottovoce.cli.privacy_plans import epsilon, plan, table
from sottovoce.cli.privacy_runs import claim, compose, explain, verify

COMMANDS: Final = (publish, neighbours, population, audit, epsilon, table, plan, claim, compose, verify, explain)

app = typer.Typer(no_args_is_help=True)
for _command in COMMANDS:
    app.command()(_command)
