"""Request traces: segments share exactly what block ids, or texts, have in common."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_workloads_readers import shared_tokens
from workloads.block_hashes import NamedBlocks
from workloads.requests import Requests
from workloads.script import CallOp
from workloads.texts import TextTree

BLOCK = 8


@st.composite
def sessions(draw):
    """Sessions over one set of ids: (ids, tokens, output) of each call; chained like prefix hashes."""
    ids: dict[tuple, int] = {}
    made = []
    for _ in range(draw(st.integers(1, 4))):
        text, session = (), []
        for _ in range(draw(st.integers(1, 4))):
            text += tuple(draw(st.lists(st.integers(0, 1), min_size=1, max_size=2 * BLOCK)))
            blocks = [text[: i + BLOCK] for i in range(0, len(text), BLOCK)]
            chain = [ids.setdefault(block, len(ids)) for block in blocks]
            session.append((chain, len(text), draw(st.integers(1, 9)), text))
        made.append(session)
    return made


@settings(max_examples=300, deadline=None)
@given(sessions(), st.booleans())
def test_named_blocks_never_share_more_than_the_ids_say(made, rest_has_id):
    calls = []
    for number, session in enumerate(made):
        prompts = NamedBlocks(100 + number, BLOCK, 7)
        for index, (ids, tokens, output, _) in enumerate(session):
            op = CallOp("", index, (), (), prompts.new_id(), output, tokens)
            prompts.place(op, ids if rest_has_id else ids[: tokens // BLOCK])
            calls.append((op, ids, tokens, number))
    for i, (a, ids, tokens, session) in enumerate(calls):
        assert sum(length for _, length in a.prompt()) == tokens
        for b, other, length, its in calls[:i]:
            same = next((k for k, (x, y) in enumerate(zip(ids, other, strict=False)) if x != y), None)
            same = min(len(ids), len(other)) if same is None else same
            whole = min(same * BLOCK, tokens, length)
            found = shared_tokens(a.prompt(), b.prompt())
            if session != its:
                assert found <= whole
            else:
                # What one id covers may continue what a shorter one covered: less than a block more.
                assert whole // BLOCK * BLOCK <= found < whole + BLOCK or found == min(tokens, length)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=40), min_size=1, max_size=8))
def test_requests_without_a_session_share_exactly_their_equal_ids(rows):
    requests = Requests("x", "a.jsonl", 0, BLOCK)
    for line, ids in enumerate(rows, 1):
        requests.columns.add(line, 0.0, len(ids) * BLOCK, 1, ids)
    prompts = [requests.script([row]).ops[0].prompt() for row in range(len(rows))]
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            same = next(
                (k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
            )
            assert shared_tokens(prompts[i], prompts[j]) == same * BLOCK


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text("abé数", min_size=1, max_size=30), min_size=1, max_size=8))
def test_texts_share_exactly_their_front(texts):
    tree = TextTree(1)
    nodes = [tree.add(text) for text in texts]
    tree.measure(len)
    for a, node in zip(texts, nodes, strict=True):
        assert sum(length for _, length in tree.segments(node)) == len(a)
        for b, other in zip(texts, nodes, strict=True):
            front = next(
                (k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
            )
            found = shared_tokens(tree.segments(node), tree.segments(other))
            # One token less where they part inside: it may be a piece of a longer one.
            assert found in ((front, front - 1) if 0 < front < min(len(a), len(b)) else (front,))
