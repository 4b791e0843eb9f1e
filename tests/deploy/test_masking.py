"""Secure aggregation: masked and plain sums are equal to the bit, whoever drops out; liars and servers get nothing."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from masked_sums import DIRECTORY, LARGEST, PHASES, Federation, client_of, session_of, sign, updates_of, verify
from sottovoce.deploy.masking import shamir
from sottovoce.deploy.masking.directory import IdentityDirectory
from sottovoce.deploy.masking.masking_client import MaskingClient
from sottovoce.deploy.masking.masking_server import MaskingServer
from sottovoce.deploy.masking.masking_session import (
    MaskingSession,
    SecureAggregationError,
    SparseGraph,
    TooFewClientsError,
    least_quorum,
    sparse_graph,
)
from sottovoce.deploy.masking.ring import add_mask_, packed, ring_bytes
from sottovoce.deploy.masking.wire import KEYS_BYTES, Kind, bitmap, client_message, open_client_message, server_message

KINDS = dict(zip(PHASES, (Kind.ADVERTISE, Kind.SHARES, Kind.MASKED, Kind.AGREEMENT, Kind.REVEAL), strict=True))


def plain_sum(federation, names):
    return sum(federation.updates[name] for name in names)


def resigned(federation, phase, name, change):
    """Return the message of a client with another body, properly signed: a liar's."""
    session, place = federation.session, federation.session.place_of(name)
    message = federation.sent[phase, name]
    size = len(message) - 41 - 64
    body, _ = open_client_message(message, KINDS[phase], session, place, size, verify)
    return client_message(KINDS[phase], session, place, change(bytes(body)), lambda text: sign(name, text))


@settings(max_examples=25)
@given(st.integers(3, 10), st.booleans(), st.integers(0, 2**32), st.data())
def test_the_masked_sum_is_the_plain_sum_of_those_whose_update_arrived(clients, sparse, seed, data):
    graph = SparseGraph(6, 4) if sparse and clients >= 9 else None
    session = session_of(clients, 7, graph=graph)
    may_drop = clients - least_quorum(clients)
    dropping = data.draw(st.lists(st.sampled_from(session.names), max_size=may_drop, unique=True))
    phases = {name: data.draw(st.sampled_from(PHASES)) for name in dropping}
    absent = {phase: [name for name in dropping if phases[name] == phase] for phase in PHASES}
    federation = Federation(session, updates_of(session, seed))
    total, contributors = federation.run(absent)
    early = {name for name in dropping if phases[name] in PHASES[:3]}
    assert set(contributors) == set(session.names) - early
    assert np.array_equal(total, plain_sum(federation, contributors))


@pytest.mark.parametrize("phase", PHASES)
def test_with_one_dropout_too_many_nothing_is_revealed(phase):
    session = session_of(8, 5)
    federation = Federation(session, updates_of(session, 1)).until(phase)
    for name, message in federation.messages(phase, absent=session.names[:3]).items():
        federation.server.receive(name, message)
    with pytest.raises(TooFewClientsError, match=r"5 of 8 clients are left .* 6 are needed"):
        federation.server.advance()
    with pytest.raises(SecureAggregationError):
        federation.server.result()
    revealed = {dealer: len(shares) for dealer, shares in federation.server._revealed.items()}
    assert all(count < session.threshold for count in revealed.values())
    assert bool(revealed) == (phase == "reveal")


def test_clients_that_are_new_processes_and_a_server_that_was_killed_give_the_same_sum():
    session = MaskingSession.from_bytes(session_of(5, 9).to_bytes())
    federation = Federation(session, updates_of(session, 2))
    again, log = MaskingServer(session, verify), []
    for phase in PHASES:
        federation.phase(phase, absent=session.names[:1] if phase == "mask" else ())
        log += [message for (when, _), message in federation.sent.items() if when == phase]
        for name, client in federation.clients.items():
            federation.clients[name] = MaskingClient.from_bytes(
                client.to_bytes(), session, name, lambda text, name=name: sign(name, text), verify
            )
        for (when, name), message in federation.sent.items():
            if when == phase:
                again.receive(name, message)
        again.advance()
    assert np.array_equal(federation.server.result().total, plain_sum(federation, session.names[1:]))
    assert np.array_equal(again.result().total, plain_sum(federation, session.names[1:]))
    with pytest.raises(SecureAggregationError, match="not the next call"):
        federation.clients[session.names[1]].reveal(b"")
    with pytest.raises(SecureAggregationError, match="once"):
        again.result()


def flip(body):
    return body[:-1] + bytes([body[-1] ^ 1])


@pytest.mark.parametrize("phase", PHASES)
def test_the_server_refuses_what_is_unsigned_replayed_or_of_someone_else_and_goes_on(phase):
    session, other_step = session_of(5, 3), session_of(5, 3, step=2)
    federation = Federation(session, updates_of(session, 3)).until(phase)
    earlier = Federation(other_step, federation.updates).until(phase)
    first, second, *_ = session.names
    right, replayed = federation.messages(phase), earlier.messages(phase)
    with_hole = right[first][:60] + bytes([right[first][60] ^ 1]) + right[first][61:]
    wrong = {
        "another step": (first, replayed[first]),
        "in the name of another": (first, right[second]),
        "signature .* not valid": (first, with_hole),
        "size": (first, right[first] + b"\0"),
        "Expected the message": (first, b""),
        "not invited": ("stranger", right[first]),
    }
    for problem, (name, message) in wrong.items():
        with pytest.raises(SecureAggregationError, match=problem):
            federation.server.receive(name, message)
    for name, message in right.items():
        federation.server.receive(name, message)
    with pytest.raises(SecureAggregationError, match="already sent"):
        federation.server.receive(first, right[first])
    federation.answers = federation.server.advance()
    for following in PHASES[PHASES.index(phase) + 1 :]:
        federation.phase(following)
    assert np.array_equal(federation.server.result().total, plain_sum(federation, session.names))


def test_a_liar_with_wrong_shares_counts_as_dropped():
    session = session_of(5, 3)
    federation = Federation(session, updates_of(session, 4)).until("reveal")
    messages = federation.messages("reveal")
    liar = session.names[0]
    with pytest.raises(SecureAggregationError, match="reveals a wrong share"):
        federation.server.receive(liar, resigned(federation, "reveal", liar, flip))
    for name in session.names[1:]:
        federation.server.receive(name, messages[name])
    federation.server.advance()
    assert np.array_equal(federation.server.result().total, plain_sum(federation, session.names))


def test_a_liar_whose_sealed_shares_are_wrong_costs_the_holders_one_share_and_changes_no_sum():
    session = session_of(5, 3)
    federation = Federation(session, updates_of(session, 4)).until("share")
    for name, message in federation.messages("share").items():
        lies = resigned(federation, "share", name, flip) if name == session.names[0] else message
        federation.server.receive(name, lies)
    federation.answers = federation.server.advance()
    for phase in PHASES[2:]:
        federation.phase(phase)
    assert np.array_equal(federation.server.result().total, plain_sum(federation, session.names))


def test_a_liar_who_deals_a_seed_that_is_not_its_own_is_named():
    session = session_of(5, 3)
    federation = Federation(session, updates_of(session, 4)).until("share")
    for name, message in federation.messages("share").items():
        lies = resigned(federation, "share", name, lambda body: flip(body[:32]) + body[32:])
        federation.server.receive(name, lies if name == session.names[0] else message)
    federation.answers = federation.server.advance()
    for phase in PHASES[2:]:
        federation.phase(phase)
    with pytest.raises(SecureAggregationError, match="'client000' dealt wrong shares"):
        federation.server.result()


def test_a_sum_out_of_range_is_refused():
    session = session_of(5, 3)
    federation = Federation(session, updates_of(session, 4)).until("mask")
    for name, message in federation.messages("mask").items():
        lies = resigned(federation, "mask", name, lambda body: body[:5] + bytes([body[5] ^ 0x40]) + body[6:])
        federation.server.receive(name, lies if name == session.names[0] else message)
    federation.answers = federation.server.advance()
    for phase in PHASES[3:]:
        federation.phase(phase)
    with pytest.raises(SecureAggregationError, match="out of range"):
        federation.server.result()


@pytest.mark.parametrize("keys", [bytes(KEYS_BYTES), bytes([1]) + bytes(KEYS_BYTES - 1)])
def test_keys_that_give_everyone_the_same_secret_are_refused(keys):
    session = session_of(3, 3)
    federation = Federation(session, {})
    federation.messages("advertise")
    with pytest.raises(SecureAggregationError, match="not usable"):
        federation.server.receive(session.names[0], resigned(federation, "advertise", session.names[0], lambda _: keys))


def test_a_client_takes_no_keys_that_the_server_put_in():
    session = session_of(5, 3)
    federation = Federation(session, {}).until("share")
    first, second, *_ = session.names
    forged = client_of(session, second)
    place = session.place_of(second)
    body = open_client_message(forged.advertise(), Kind.ADVERTISE, session, place, KEYS_BYTES, verify)[0]
    message = client_message(Kind.ADVERTISE, session, place, bytes(body), lambda text: sign("client098", text))
    roster = federation.answers[first].replace(federation.sent["advertise", second], message)
    assert roster != federation.answers[first]
    with pytest.raises(SecureAggregationError, match="'client001' is not valid"):
        federation.clients[first].share(roster)
    with pytest.raises(SecureAggregationError, match="has ended"):
        federation.clients[first].share(federation.answers[first])


def test_the_directory_knows_its_clients_and_changes_its_digest_with_any_key():
    keys = dict(DIRECTORY.keys)
    assert DIRECTORY.verify("client001", b"text", sign("client001", b"text"))
    assert not DIRECTORY.verify("client001", b"text", sign("client002", b"text"))
    assert not DIRECTORY.verify("stranger", b"text", sign("client002", b"text"))
    keys["client001"] = keys.pop("client098")
    assert IdentityDirectory(keys).digest != DIRECTORY.digest
    for wrong in ({"client000": keys["client001"]}, {"client000": b"short"}):
        with pytest.raises(SecureAggregationError):
            IdentityDirectory(keys | wrong)


@pytest.mark.parametrize(
    ("survivors", "problem"),
    [(range(1, 8), "leaves out this one"), (range(5), "Only 5 clients"), (range(7), None)],
)
def test_a_client_signs_only_lists_of_a_quorum_that_it_is_on(survivors, problem):
    session = session_of(8, 3)
    federation = Federation(session, updates_of(session, 5)).until("agree")
    message = server_message(Kind.SURVIVORS, session, bitmap(survivors, session))
    client = federation.clients[session.names[0]]
    if problem is None:
        assert client.agree(message)
    else:
        with pytest.raises(SecureAggregationError, match=problem):
            client.agree(message)


def test_a_server_that_shows_two_lists_of_survivors_gets_no_shares():
    session = session_of(8, 3)
    federation = Federation(session, updates_of(session, 6)).until("agree")
    shorter = server_message(Kind.SURVIVORS, session, bitmap(range(7), session))
    signed = {name: client.agree(shorter) for name, client in list(federation.clients.items())[:4]}
    signed |= {name: federation.clients[name].agree(federation.answers[name]) for name in session.names[4:]}
    signatures = [message[41 : 41 + 64] for message in signed.values()]
    for chosen in (range(8), range(6), range(2, 8), range(4)):
        listed = b"".join(b"\0\x40" + signatures[place] for place in chosen)
        agreed = server_message(Kind.AGREED, session, bitmap(chosen, session), listed)
        name = session.names[chosen[-1] % 8]
        client = MaskingClient.from_bytes(
            federation.clients[name].to_bytes(), session, name, lambda text, name=name: sign(name, text), verify
        )
        with pytest.raises(SecureAggregationError, match="Nothing is revealed"):
            client.reveal(agreed)


def test_nobody_ever_gets_both_kinds_of_shares_of_a_client():
    session = session_of(8, 3)
    federation = Federation(session, updates_of(session, 6))
    federation.run({"mask": session.names[:2]})
    for place in range(2, 8):
        kinds = [len(federation.server._revealed[dealer]) for dealer in range(8)]
        state = federation.clients[session.names[place]]._state
        body = federation.sent["reveal", session.names[place]][41 + 64 :]
        for dealer, held in state.held.items():
            key, seed = held[: shamir.SHARE_BYTES], held[shamir.SHARE_BYTES :]
            assert (key in body) == (dealer < 2)
            assert (seed in body) == (dealer >= 2)
        assert kinds == [6] * 8


@pytest.mark.parametrize("value", [0, LARGEST, -LARGEST])
def test_a_single_masked_update_looks_uniform_whatever_it_is(value):
    session = session_of(3, 20_000)
    federation = Federation(session, dict.fromkeys(session.names, np.full(20_000, value))).until("mask")
    bodies = [message[41 + 64 :] for message in federation.messages("mask").values()]
    for body in bodies:
        assert chisquare(np.bincount(np.frombuffer(body, np.uint8), minlength=256)).pvalue > 1e-6
    pairs = np.frombuffer(bodies[0], np.uint8) ^ np.frombuffer(bodies[1], np.uint8)
    assert chisquare(np.bincount(pairs, minlength=256)).pvalue > 1e-6


def test_an_update_that_would_wrap_around_or_has_another_length_is_not_sent():
    for update in (np.full(3, LARGEST + 1), np.full(3, -(2**63)), np.zeros(4, np.int64), np.zeros(3)):
        session = session_of(3, 3)
        federation = Federation(session, dict.fromkeys(session.names, update)).until("mask")
        with pytest.raises(SecureAggregationError):
            federation.messages("mask")


@pytest.mark.parametrize(("users", "octets"), [(1, 5), (8, 6), (200, 6), (511, 6), (512, 7), (2**24, 8)])
def test_the_ring_is_as_small_as_the_largest_sum_allows(users, octets):
    assert ring_bytes(users, LARGEST) == octets
    assert users * LARGEST < 2 ** (8 * octets - 1)
    assert users * LARGEST >= 2 ** (8 * octets - 9)


def test_masks_are_the_key_stream_of_chacha20():
    words = np.zeros(4, np.uint64)
    add_mask_(words, bytes(32), 1)  # RFC 8439, A.1, first test vector
    assert packed(words, 8).hex() == "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    add_mask_(words, bytes(32), -1)
    assert not words.any()
    longer = np.zeros(2**16 + 5, np.uint64)
    add_mask_(longer, bytes(32), 1)
    assert len(np.unique(longer)) == len(longer)  # no part of the stream is used twice


def test_shares_are_the_values_of_a_polynomial():
    drawn = b"".join(number.to_bytes(82, "big") for number in (5, 3))
    shares = shamir.split(bytes([7]), [0, 1, 9], 3, drawn)  # 5 x^2 + 3 x + 7 at x = 1, 2, 10
    assert [int.from_bytes(share, "big") for share in shares.values()] == [15, 33, 537]


def test_any_threshold_of_shares_gives_the_secret_and_fewer_do_not():
    secret = bytes(range(32))
    drawn = np.random.default_rng(1).bytes(shamir.random_bytes(3))
    shares = shamir.split(secret, range(5), 3, drawn)
    for size in range(1, 6):
        for holders in combinations(range(5), size):
            assert (shamir.Interpolation(holders).secret(shares, 32) == secret) == (size >= 3)


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 255))
def test_damaged_invitations_are_refused(garbage, place, value):
    data = session_of(4, 3).to_bytes()
    for damaged in (
        garbage,
        data[:place],
        data + garbage[:1] + b"\0",
        data[:place] + bytes([value]) + data[place + 1 :],
    ):
        try:
            session = MaskingSession.from_bytes(damaged)
        except SecureAggregationError:
            continue
        assert session.to_bytes() == damaged


def test_sessions_that_protect_too_little_are_refused():
    with pytest.raises(TooFewClientsError, match="3 to 4096 clients, not 2"):
        session_of(2, 3)
    right = session_of(9, 3)
    for wrong in ({"quorum": 6}, {"threshold": 6}, {"degree": 4, "threshold": 2}, {"names": right.names[::-1]}):
        with pytest.raises(SecureAggregationError):
            MaskingSession(**{**vars(right), **wrong})
    with pytest.raises(SecureAggregationError, match="too small"):
        MaskingClient(right, right.names[0], lambda text: text, verify, fewest=10)


def test_a_sparse_graph_keeps_its_promise_in_exact_arithmetic():
    graph = sparse_graph(200, 0.2, 0.2)
    assert graph is not None

    def drawn(marked, counts):  # how often this many of the neighbours are marked, at random
        ways = sum(math.comb(marked, count) * math.comb(199 - marked, graph.degree - count) for count in counts)
        return ways / math.comb(199, graph.degree)

    assert 200 * drawn(40, range(graph.threshold, graph.degree + 1)) <= 2**-40
    assert 200 * drawn(159, range(graph.threshold)) <= 2**-20
    assert 200 * 0.4 ** (graph.degree / 2) <= 2**-40
    session = session_of(20, 3, graph=SparseGraph(6, 4))
    for place in range(20):
        assert len(session.neighbours(place)) == 6
        assert all(place in session.neighbours(other) for other in session.neighbours(place))
