"""sotto deploy: the same training on real clients, and a demonstration of it on one machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.cli.arguments import AsJson
from sottovoce.cli.config import Preset, Settings, configured
from sottovoce.cli.console import counted, note, print_json, safe, say
from sottovoce.cli.train import Dev, SeedModel, Test, data_layers
from sottovoce.errors import ConfigError

if TYPE_CHECKING:
    from sottovoce.config import Resolved

app = typer.Typer(no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The server's folder.")]


@app.command()
def keys(
    folder: Folder,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="A name or address of the server, for its certificate.")
    ] = None,
    token: Annotated[
        list[str] | None, typer.Option("--token", metavar="USER", help="Issue a one-time token for a user.")
    ] = None,
    revoke: Annotated[
        list[str] | None, typer.Option("--revoke", metavar="USER", help="Forget a user's keys and tokens.")
    ] = None,
    admit: Annotated[
        list[str] | None,
        typer.Option("--admit", metavar="USER=FILE", help="Enrol a user without a token, by a client's public.json."),
    ] = None,
    client_keys: Annotated[
        bool, typer.Option("--client", help="Make a client's keys in FOLDER instead; its public.json is for --admit.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the certificates of a server; issue one-time tokens to users, and revoke their keys.

    A token is shown once, and only its hash is kept. Clients need it, and FOLDER/ca.crt. A user who gets another token
    replaces their keys with it. Private keys stay in FOLDER, for their owner only.

    Example: sotto deploy keys server --host asr.example.org --token ann --token bob
    """
    _require_extra()
    from sottovoce.deploy.enrolment import Enrolment
    from sottovoce.deploy.keys import CA_CERT, PUBLIC_KEYS, make_certificates
    from sottovoce.deploy.keys import client_keys as make_client_keys

    if client_keys:
        make_client_keys(folder)
        note(f"{folder / PUBLIC_KEYS}: for the operator. The keys beside it stay here.")
        return
    made = make_certificates(folder, host or ())
    enrolment = Enrolment(folder)
    for user in revoke or []:
        enrolment.revoke(user)
        note(f"{user}: revoked.")
    for pair in admit or []:
        user, equals, place = pair.partition("=")
        if not equals:
            raise ConfigError(f"Expected --admit USER=FILE, not {pair!r}.")
        enrolment.admit(user, Path(place))
        note(f"{user}: enrolled.")
    tokens = enrolment.issue(token) if token else {}
    if as_json:
        print_json({"folder": str(folder), "ca": str(folder / CA_CERT), "made": made, "tokens": tokens})
        return
    if made:
        note(f"{folder}: certificates made. Clients need {folder / CA_CERT}.")
    for user, secret in tokens.items():
        typer.echo(f"{safe(user)}\t{secret}")  # rich would make spaces of the tab


@app.command()
def server(
    preset: Preset,
    folder: Annotated[Path, typer.Option("--folder", help="The server's folder, made by `sotto deploy keys`.")],
    run: Annotated[Path, typer.Option("--run", help="The run's folder; an unfinished run in it goes on.")],
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect; 0.0.0.0 is every address.")
    ] = "0.0.0.0:9443",
    users: Annotated[
        int | None,
        typer.Option("--users", min=1, help="Begin when so many are enrolled. Default: all tokens used."),
    ] = None,
    deadline: Annotated[
        float, typer.Option("--deadline", min=1, help="Seconds that a step waits for the clients of its cohort.")
    ] = 600.0,
    settle: Annotated[
        float, typer.Option("--settle", min=0, help="Seconds to wait at most for all clients to connect, at the start.")
    ] = 60.0,
    languages: Annotated[
        list[str] | None, typer.Option("--language", help="A language of the users: en, fr or de. Default: en.")
    ] = None,
    secure_aggregation: Annotated[
        bool,
        typer.Option(
            "--secure-aggregation",
            help="Learn only sums of updates. More than two thirds of a cohort must stay.",
        ),
    ] = False,
    seed_model: SeedModel = None,
    dev: Dev = None,
    test: Test = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Train PRESET on enrolled clients: draw cohorts, ask, check, add up, noise, charge, and move the model.

    The same mechanism, ledger and checkpoints as `sotto train federated`. Killed and started again, it goes on. Noise
    and cohorts come from the operating system's generator unless --set randomness.source=seeded asks for a simulation.
    Only enrolled keys get in, over TLS. Set participation.population to a public number that enrolment will not exceed.

    Example: sotto deploy server tiny --folder server --run runs/pilot --set participation.population=200 --set ...
    """
    _require_extra()
    from sottovoce.cli.training_display import TrainingDisplay
    from sottovoce.deploy.server_process import ServerOptions, run_server

    host, port = _address(listen, "--listen")
    resolved = _secure(configured(preset, settings, *data_layers(dev=dev, test=test, seed_model=seed_model)))
    options = ServerOptions(
        folder=folder,
        run=run,
        host=host or "0.0.0.0",  # noqa: S104 - clients are on other machines
        port=port,
        users=users,
        deadline_seconds=deadline,
        languages=tuple(languages or ["en"]),
        settle_seconds=settle,
        secure_aggregation=secure_aggregation,
    )
    trained = run_server(resolved, options, TrainingDisplay, note)
    result = trained.result
    if result is None:
        note(f"{run}: stopped. The same command goes on.")
    elif as_json:
        print_json({"run": str(run), **result.model_dump(mode="json")})
    else:
        say(f"{run}: {counted(result.steps or 0, 'step')}; {result.guarantee}")


@app.command()
def client(
    store: Annotated[Path, typer.Option("--store", help="The store with the user's audio.")],
    server: Annotated[str, typer.Option("--server", metavar="HOST:PORT", help="The server.")],
    ca: Annotated[Path, typer.Option("--ca", help="The server's ca.crt.")],
    keys: Annotated[Path, typer.Option("--keys", help="The folder of this client's keys; they are made there.")],
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="To enrol, the first time: a file with the token.")
    ] = None,
    site: Annotated[
        bool, typer.Option("--site", help="Answer for several users: a token for each, named like the speakers.")
    ] = False,
    only_masked: Annotated[
        bool, typer.Option("--only-masked", help="Send no update without the masks of secure aggregation.")
    ] = False,
    poll: Annotated[float, typer.Option("--poll", min=0.05, help="Seconds between questions for work.")] = 4.0,
    give_up: Annotated[
        float | None, typer.Option("--give-up", min=1, help="End when the server is away for so many seconds.")
    ] = None,
) -> None:
    """Train on the audio of one user whenever the server asks, and send the clipped, signed integers; nothing else.

    Runs until it is stopped. When the server is away it waits and tries again.

    Example: sotto deploy client --store stores/ann --server example.org:9443 --ca ca.crt --keys keys --token-file token
    """
    _require_extra()
    from sottovoce.deploy.client_enrolment import is_enrolled, read_tokens
    from sottovoce.deploy.client_process import ClientOptions, run_client

    _address(server, "--server")
    options = ClientOptions(
        store=store,
        server=server,
        ca=ca,
        folder=keys,
        tokens=[] if token_file is None or is_enrolled(keys) else read_tokens(token_file),
        site=site,
        only_masked=only_masked,
        poll_seconds=poll,
        max_offline_seconds=give_up,
    )
    run_client(options, note)


@app.command()
def status(
    folder: Folder,
    run: Annotated[Path | None, typer.Option("--run", help="A run of this server, for its progress.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print who is enrolled and who has not used a token; with --run, how far it is and who contributed last.

    For the operator: names, and who took part, are private.

    Example: sotto deploy status server --run runs/pilot
    """
    _require_extra()
    from sottovoce.deploy.deployment_status import status_of

    found = status_of(folder, run)
    if as_json:
        print_json(found.document())
    else:
        for line in found.lines():
            say(line)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="A new folder for certificates, stores, logs and runs.")] = Path(
        "runs/deploy-demo"
    ),
    as_json: AsJson = False,
) -> None:
    """Deploy on this machine: a server, eight clients, one killed, one lying; compare with the simulation to the bit.

    Ends with the privacy statement, and the SHA-256 of the deployed model and of a simulation that is told who
    contributed in each step. A few minutes.

    Example: sotto deploy demo --out runs/deploy-demo
    """
    _require_extra()
    from sottovoce.deploy.deploy_demo import demonstrate
    from sottovoce.privacy.claims import statement
    from sottovoce.runs.verification import verified_account

    if out.exists():
        raise ConfigError(f"{out} exists. Give a new folder with --out.")
    shown = demonstrate(out, note)
    text = statement(verified_account(shown.run))
    if as_json:
        print_json(
            {
                "deployed_sha256": shown.deployed_sha256,
                "simulated_sha256": shown.simulated_sha256,
                "equal": shown.equal,
                "clients": shown.clients,
                "killed": shown.killed,
                "liar": shown.liar,
                "steps": [
                    {"step": step.step, "contributed": step.contributed, "refused": step.refused, "silent": step.silent}
                    for step in shown.steps
                ],
                "statement": text,
            }
        )
    else:
        for step in shown.steps:
            refused = "".join(f", {user} refused ({reason})" for user, reason in step.refused.items())
            silent = f", {', '.join(step.silent)} silent" if step.silent else ""
            say(f"Step {step.step + 1}: {counted(len(step.contributed), 'user')} contributed{refused}{silent}.")
        say(text.rstrip("\n"))
        say(f"deployed   {shown.deployed_sha256}\nsimulated  {shown.simulated_sha256}")
    if not shown.equal:
        raise ConfigError("The deployed model and the simulated one differ. This must not happen: please report it.")


def _secure(resolved: "Resolved") -> "Resolved":
    """Return the configuration with randomness from the operating system, unless it was asked for otherwise."""
    from sottovoce.config import Layer

    if "randomness.source" in resolved.sources:
        return resolved
    return resolved.over(Layer({"randomness": {"source": "secure"}}, "the deployment"))


def _address(text: str, option: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or "/" in host or " " in host:
        raise ConfigError(f"Expected {option} HOST:PORT, such as asr.example.org:9443, not {text!r}.")
    return host.strip("[]"), int(port)


def _require_extra() -> None:
    """Raise before any work where the libraries of a deployment are not installed."""
    from importlib.util import find_spec

    if find_spec("flwr") is None or find_spec("cryptography") is None:
        raise ConfigError("A deployment needs Flower. Install it with: pip install 'sottovoce[deploy]'")
