"""Tree of Thoughts on the game of 24, breadth first with a beam: the preset ``mcts:tot``.

A level: one *propose* call for every state of the beam, concurrently; then ``value_samples``
*value* calls for every candidate not valued before, concurrently; the best states are the next
beam. Every level's beam is full, so there are 1 + beam * (levels - 1) propose calls, and the
number of candidates valued decides the number of calls (31 = 16 + 3 * 5 at the least).

Prompts do not grow: each is a template, the same text for all programs, and the state (the
numbers that are left). The samples of one value are the same prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vocabulary import Segment
from workloads.keys import key_of
from workloads.parameters import Parameters
from workloads.phases import together
from workloads.random_streams import Dist, Stream, stream
from workloads.session import Session


@dataclass(frozen=True, slots=True)
class Shape:
    """What a search is drawn from. ``candidates``: states valued per program; lengths in tokens."""

    levels: int
    beam: int
    value_samples: int
    candidates: Dist
    propose: Segment
    value: Segment
    state: int
    output: Dist
    value_output: Dist

    @property
    def longest(self) -> int:
        """Prompt + output of the longest call there can be (tokens)."""
        longer = max(self.propose[1] + self.output.most_tokens, self.value[1] + self.value_output.most_tokens)
        return longer + self.state

    def found(self, key: int) -> list[int]:
        """New candidates per propose call, in order. The first call finds a whole beam at least."""
        calls = 1 + self.beam * (self.levels - 1)
        found = [0] * calls
        found[0] = self.beam
        where = stream(key, "found")
        for _ in range(self.candidates.count(stream(key, "candidates")) - self.beam):
            found[where.below(calls)] += 1
        return found


def read_shape(p: Parameters) -> Shape:
    """The shape of a preset. Raises WorkloadError naming the parameter."""
    scale = p.positive("token_scale")
    return Shape(
        levels=p.count("levels"),
        beam=p.count("beam"),
        value_samples=p.count("value_samples"),
        candidates=p.dist("candidates"),
        propose=_template(p, "propose_prompt", scale),
        value=_template(p, "value_prompt", scale),
        state=max(1, round(p.positive("state") * scale)),
        output=p.dist("output").scaled(scale),
        value_output=p.dist("value_output").scaled(scale),
    )


def _template(p: Parameters, name: str, scale: float) -> Segment:
    return key_of(p.where, name), max(1, round(p.positive(name) * scale))


async def search(shape: Shape, s: Session) -> None:
    """One program; ``s`` is its root thread, which makes no call itself."""
    picks, found = stream(s.key, "beam"), iter(shape.found(s.key))
    beam = [s.new_id()]
    for _ in range(shape.levels):
        candidates = [s.new_id() for _ in beam for _ in range(next(found))]
        await _ask(s, shape.propose, beam, shape)
        await _ask(s, shape.value, [c for c in candidates for _ in range(shape.value_samples)], shape)
        beam = _best(s, candidates, shape.beam, picks)


async def _ask(s: Session, template: Segment, states: Sequence[int], shape: Shape) -> None:
    """One phase: a call for each of ``states``."""
    output = shape.output if template is shape.propose else shape.value_output
    forks = [s.fork() for _ in states]
    await together(
        s,
        forks,
        [
            _call(fork, (template, (state, shape.state)), output.tokens(stream(fork.key, "output")))
            for fork, state in zip(forks, states, strict=True)
        ],
    )


async def _call(fork: Session, prompt: tuple[Segment, Segment], output: int) -> None:
    await fork.call(prompt, output=output)


def _best(s: Session, candidates: list[int], beam: int, picks: Stream) -> list[int]:
    """The next beam; where too few candidates are new, states valued before fill it."""
    best = picks.shuffled(candidates)[:beam]
    return best + [s.new_id() for _ in range(beam - len(best))]
