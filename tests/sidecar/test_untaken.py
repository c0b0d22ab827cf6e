"""Room for answers: whose turn it is, and who is given up on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from lilo_sidecar.web.untaken import MAX_UNTAKEN, MOMENT, Untaken


class Clients:
    """Clients that take their answers when they are told to."""

    def __init__(self) -> None:
        self.untaken = Untaken()
        self.answered: list[str] = []
        """Whose answers were made, in that order."""
        self.given_up: list[str] = []
        self.taken = trio.Event()

    async def ask(self, name: str, size: int = MAX_UNTAKEN + 1, slow: bool = False) -> None:
        """Get an answer of that size and take it in the end; ``slow`` is a server that takes a
        while to forget about one that it has given up on."""
        with trio.CancelScope() as scope:

            def give_up() -> None:
                self.given_up.append(name)
                if not slow:
                    scope.cancel()

            await self.untaken.room()
            self.answered.append(name)
            with self.untaken.holding(bytes(size), give_up):
                await self.taken.wait()


def run(act: Callable[[Clients, trio.Nursery], Awaitable[None]]) -> float:
    """Run ``act`` on a virtual clock; the seconds that it took."""

    async def main() -> float:
        async with trio.open_nursery() as nursery:
            begun = trio.current_time()
            with trio.fail_after(3600):  # rather than wait for ever
                await act(Clients(), nursery)
            nursery.cancel_scope.cancel()
        return trio.current_time() - begun

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.0))


def test_room_is_had_in_the_order_of_asking() -> None:
    """The oldest answer goes for each, once it had its moment."""

    async def act(clients: Clients, nursery: trio.Nursery) -> None:
        for number in range(20):
            nursery.start_soon(clients.ask, str(number))
            await trio.testing.wait_all_tasks_blocked()
            assert clients.answered == ["0"]
        await trio.sleep(30 * MOMENT)
        assert clients.answered == [str(number) for number in range(20)]
        assert clients.given_up == [str(number) for number in range(19)]

    run(act)


def test_small_answers_wait_as_well_but_keep_each_other_no_room() -> None:
    """There is room up to the bound, whatever it is made of."""

    async def act(clients: Clients, nursery: trio.Nursery) -> None:
        for number in range(MAX_UNTAKEN // 65536 + 1):
            nursery.start_soon(clients.ask, str(number), 65536)
            await trio.testing.wait_all_tasks_blocked()
            assert clients.answered[-1] == str(number)
            assert clients.untaken.is_full == (number == MAX_UNTAKEN // 65536)
        nursery.start_soon(clients.ask, "small", 1)
        await trio.testing.wait_all_tasks_blocked()
        assert clients.answered[-1] != "small"
        clients.taken.set()
        await trio.testing.wait_all_tasks_blocked()
        assert clients.answered[-1] == "small"
        assert not clients.untaken.is_full
        assert clients.given_up == []

    assert run(act) == 0


def test_answer_counts_until_its_memory_is_given_back() -> None:
    """Giving up on a client makes no room yet; the next one's turn is when it has ended. Nobody is
    given up on twice."""

    async def act(clients: Clients, nursery: trio.Nursery) -> None:
        nursery.start_soon(clients.ask, "slow", MAX_UNTAKEN + 1, True)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(clients.ask, "next")
        await trio.sleep(10 * MOMENT)
        assert (clients.answered, clients.given_up) == (["slow"], ["slow"])
        clients.taken.set()
        await trio.testing.wait_all_tasks_blocked()
        assert clients.answered == ["slow", "next"]

    run(act)


def test_answer_that_several_have_counts_once() -> None:
    """It is the same memory, until the last of them took it."""
    untaken, answer = Untaken(), bytes(MAX_UNTAKEN)

    def nobody() -> None:
        raise AssertionError

    async def act() -> None:
        with untaken.holding(answer, nobody), untaken.holding(bytes(1), nobody):
            with untaken.holding(answer, nobody), untaken.holding(answer, nobody):
                assert untaken.is_full
            assert untaken.is_full
        assert not untaken.is_full
        with untaken.holding(answer, nobody), untaken.holding(answer, nobody):
            assert not untaken.is_full

    trio.run(act)


@pytest.mark.parametrize("leaving", [0, 1])
def test_client_that_leaves_while_it_waits(leaving: int) -> None:
    """Its turn is the next one's."""

    async def act(clients: Clients, nursery: trio.Nursery) -> None:
        nursery.start_soon(clients.ask, "first")
        scopes = [trio.CancelScope() for _ in range(2)]

        async def wait(number: int) -> None:
            with scopes[number]:
                await clients.ask(str(number))

        await trio.testing.wait_all_tasks_blocked()
        for number in range(2):
            nursery.start_soon(wait, number)
            await trio.testing.wait_all_tasks_blocked()
        scopes[leaving].cancel()
        await trio.sleep(3 * MOMENT)
        assert clients.answered == ["first", str(1 - leaving)]

    run(act)
