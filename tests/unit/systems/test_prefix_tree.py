import random

from systems.prefix_tree import PrefixTree


def tokens_of(prompt):
    return [(segment, offset) for segment, length in prompt for offset in range(length)]


def shared(one, two):
    count = 0
    for a, b in zip(tokens_of(one), tokens_of(two), strict=False):
        if a != b:
            break
        count += 1
    return count


def test_match_is_the_longest_shared_prefix():
    """Against token lists, over random prompts of few segments."""
    rng = random.Random(1)
    tree, entered = PrefixTree(), []
    for _ in range(300):
        prompt = [(rng.randrange(3), rng.randint(1, 5)) for _ in range(rng.randint(0, 5))]
        assert tree.match(prompt) == max((shared(prompt, old) for old in entered), default=0)
        tree.insert(prompt)
        entered.append(prompt)
        assert tree.match(prompt) == len(tokens_of(prompt))
        assert tree.tokens == len(
            {tuple(tokens_of(p)[:n]) for p in entered for n in range(1, len(tokens_of(p)) + 1)}
        )


def test_insert_gives_the_same_node_for_the_same_end():
    tree = PrefixTree()
    end = tree.insert([(1, 10), (2, 5)])
    assert tree.insert([(1, 10), (2, 5)]) is end
    assert tree.insert([(1, 10), (2, 3)]) is end.above
    assert tree.insert([(1, 10), (2, 5)]) is end
    assert tree.insert([]) is tree.root


def test_trim_drops_the_longest_untouched_tail_first():
    tree = PrefixTree()
    old, new, stem = [(1, 10), (2, 10)], [(1, 10), (3, 10)], [(1, 10)]
    tree.insert(old)
    tree.insert(new)
    tree.insert(old)
    tree.trim(29)
    assert (tree.match(old), tree.match(new), tree.tokens) == (20, 10, 20)
    tree.trim(10)
    assert (tree.match(old), tree.match(stem), tree.tokens) == (10, 10, 10)
    tree.trim(0)
    assert (tree.tokens, tree.root.children) == (0, {})


def test_trimming_bounds_what_is_kept():
    rng = random.Random(2)
    tree = PrefixTree()
    for _ in range(500):
        tree.insert([(rng.randrange(20), rng.randint(1, 30)) for _ in range(rng.randint(1, 6))])
        tree.trim(200)
        assert tree.tokens <= 200
        nodes = [tree.root]
        for node in nodes:
            nodes += node.children.values()
        assert tree.tokens == sum(node.stop - node.start for node in nodes)
        assert set(tree._leaves) == {node for node in nodes[1:] if not node.children}
