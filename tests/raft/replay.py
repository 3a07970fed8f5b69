"""One seed again, with everything that happened: `python -m tests.raft.replay SEED [MUTANT]`.

MUTANT is a part of a mutant's name, see mutants.py.
"""

import sys

from .mutants import MUTANTS
from .simulation import Simulation


def main() -> None:
    if len(sys.argv) > 2:
        mutant = next(mutant for mutant in MUTANTS if sys.argv[2] in mutant.name)
        setattr(mutant.where, mutant.what, mutant.instead)
    Simulation(int(sys.argv[1]), trace=print).run()


if __name__ == "__main__":
    main()
