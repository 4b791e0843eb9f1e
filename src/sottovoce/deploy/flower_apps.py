"""The same clients and server as apps of stock Flower (`plain_app.py`), by its public interface only."""

import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from typing import Any

from sottovoce.deploy.flower_records import QUERY, TRAIN, from_records, to_records  # first: it checks Flower's version
from sottovoce.deploy.link import Answer
from sottovoce.deploy.messages import Envelope

# isort: split
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

_USERS = "users"
_POLL_SECONDS = 0.2
_ASKING_SHARE = 0.3  # of a step's time, for asking nodes whose clients they are


class GridFleet:
    """All clients, as a ServerApp of a stock SuperLink sees them; nodes say themselves whose clients they are.

    A node that claims another's user gains nothing: updates are signed by the users' own keys.
    """

    def __init__(self, grid: Any) -> None:
        """Use the grid that Flower gives to a ServerApp."""
        self._grid = grid
        self._known: dict[int, list[str]] = {}  # the users of every node that has answered

    def ask(self, tasks: Mapping[str, tuple[bytes, Envelope]], seconds: float) -> Iterator[Answer]:
        """Send every user's client its task; yield answers as they arrive until time is up (see `Fleet.ask`)."""
        give_up = time.monotonic() + seconds
        online = set(self._grid.get_node_ids())
        self._learn_users(online, tasks.keys(), seconds)
        nodes = self._nodes(online)
        messages = {
            user: Message(to_records(envelope), nodes[user], TRAIN, ttl=seconds)
            for user, (_, envelope) in tasks.items()
            if user in nodes
        }
        for user, reply in self._replies(messages, give_up):
            try:
                yield Answer(user, from_records(reply.content))
            except Exception:
                yield Answer(user, None)

    def _learn_users(self, online: set[int], wanted: Set[str], seconds: float) -> None:
        """Ask nodes that have not answered yet for their users, until all who are wanted are found.

        That takes a part of the step's time at most: a node that never answers must not cost the others theirs.
        """
        questions = {node: Message(RecordDict(), node, QUERY, ttl=seconds) for node in online - self._known.keys()}
        if wanted <= self._nodes(online).keys():
            return
        for node, reply in self._replies(questions, time.monotonic() + _ASKING_SHARE * seconds):
            with suppress(Exception):  # whatever a hostile node answers, it then has no users
                content: Any = reply.content
                self._known[node] = [str(user) for user in content[_USERS][_USERS]]
            if wanted <= self._nodes(online).keys():
                return

    def _nodes(self, online: set[int]) -> dict[str, int]:
        """Return the node of every user who is known to have one that is connected."""
        return {user: node for node in online & self._known.keys() for user in self._known[node]}

    def _replies(self, messages: Mapping[Any, Message], give_up: float) -> Iterator[tuple[Any, Message]]:
        """Send messages; yield the replies that are no errors, by the keys of the messages, until time is up."""
        numbers = self._grid.push_messages(list(messages.values())) if messages else []
        waiting = {number: key for number, key in zip(numbers, messages, strict=True) if number}
        while waiting and time.monotonic() < give_up:
            for number in list(waiting):
                for reply in self._grid.pull_messages([number]):
                    key = waiting.pop(number, None)
                    if key is not None and not reply.has_error():
                        yield key, reply
            time.sleep(_POLL_SECONDS)


def make_server_app(serve: Callable[[GridFleet, Mapping[str, Any]], None]) -> Any:
    """Return Flower's ServerApp around a function of the fleet and the run's configuration."""
    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        serve(GridFleet(grid), context.run_config)

    return app


def make_client_app(
    users: Callable[[Mapping[str, Any]], list[str]], answer: Callable[[Mapping[str, Any], Envelope], Envelope]
) -> Any:
    """Return Flower's ClientApp around two functions of a node's configuration: its users, and its answer to a task."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Any) -> Message:
        return Message(RecordDict({_USERS: ConfigRecord({_USERS: users(context.node_config)})}), reply_to=message)

    @app.train()
    def train(message: Message, context: Any) -> Message:
        return Message(to_records(answer(context.node_config, from_records(message.content))), reply_to=message)

    return app
