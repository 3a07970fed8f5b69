"""The simulation notices errors in the core."""

import pytest

from cometmq.raft.errors import SafetyViolated

from .mutants import MUTANTS, Mutant
from .simulation import Simulation


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutant.where, mutant.what, mutant.instead)
    for seed in mutant.seeds:
        try:
            Simulation(seed).run()
        except (AssertionError, SafetyViolated) as error:
            print(f"{mutant.name}: seed {seed}, {error!r}")
            return
    pytest.fail(f"not caught within {len(mutant.seeds)} seeds: {mutant.name}")
