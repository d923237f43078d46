"""The option that rewrites the expected files; read the diff before committing it."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the golden cases give now (name tests/golden on the command line, too)",
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    # Pytest reads this file late when no folder is named; then the option does not exist.
    return bool(request.config.getoption("--update-golden", default=False))
