import pytest

from bench.drivers.token_ids import Texts, TokenIds


def test_equal_pairs_are_equal_tokens_and_a_segment_is_a_prefix_of_itself():
    ids, again = TokenIds(1000, "a"), TokenIds(1000, "a")
    assert ids.segment(7, 20) == again.segment(7, 50)[:20]
    assert ids.segment(7, 20) != ids.segment(8, 20)
    assert ids.segment(7, 20) != TokenIds(1000, "b").segment(7, 20)
    assert all(0 <= token < 1000 for token in ids.segment(7, 5000))
    assert len(set(ids.segment(7, 5000))) > 900


def test_a_reply_is_what_really_came_and_may_be_quoted_in_part():
    texts = Texts(TokenIds(1000, "a"))
    texts.replied(5, (1, 2, 3))
    prompt = texts.prompt([(4, 2), (5, 3), (6, 1)])
    assert prompt[2:5] == [1, 2, 3]
    assert len(prompt) == 6
    assert texts.prompt([(5, 2)]) == [1, 2]
    with pytest.raises(ValueError, match="4 tokens of a reply of 3"):
        texts.prompt([(5, 4)])


def test_programs_do_not_hear_each_other():
    ids = TokenIds(1000, "a")
    one, two = Texts(ids), Texts(ids)
    one.replied(5, (1, 2, 3))
    assert two.prompt([(5, 3)]) == list(ids.segment(5, 3))


@pytest.mark.parametrize("vocabulary", [0, 65_537])
def test_a_vocabulary_that_two_bytes_do_not_hold(vocabulary):
    with pytest.raises(ValueError, match="1 to 65536"):
        TokenIds(vocabulary, "a")
