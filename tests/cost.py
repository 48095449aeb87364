"""Reports the CPU time of a test run: the total, and the files that take the most."""

import resource
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest

SHOWN = 10
KEY = "cpu seconds"


class Cost:
    """A pytest plugin, one per process of a run. The main process adds the figures of its workers."""

    def __init__(self) -> None:
        self._files: defaultdict[str, float] = defaultdict(float)
        self._workers: list[float] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note the CPU time before the test; its report needs the difference."""
        item.stash[_BEFORE] = _cpu()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the CPU time of the test to its report."""
        report = yield
        if call.when == "teardown":
            report.user_properties.append((KEY, _cpu() - item.stash[_BEFORE]))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the CPU time of a test to the sum of its file."""
        for name, seconds in report.user_properties:
            if name == KEY and isinstance(seconds, float):
                self._files[report.nodeid.partition("::")[0]] += seconds

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the CPU time of this worker to the main process."""
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[KEY] = _cpu()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the CPU time of a finished worker."""
        self._workers += [node.workeroutput[KEY]] if hasattr(node, "workeroutput") else []

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the figures."""
        every = sum(self._workers) if self._workers else _cpu()
        terminalreporter.section("CPU")
        terminalreporter.write_line(f"{every:7.1f} s in all, with imports and collection")
        slowest = sorted(self._files.items(), key=lambda each: -each[1])[:SHOWN]
        for file, seconds in slowest:
            terminalreporter.write_line(f"{seconds:7.1f} s  {file}")


_BEFORE: pytest.StashKey[float] = pytest.StashKey()


def _cpu() -> float:
    """Return the CPU seconds of this process and of its finished children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
