"""The run-time type checker of the tests; an int may stand for a float, as Python has it."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
