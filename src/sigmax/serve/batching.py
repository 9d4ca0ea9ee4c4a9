"""Small requests that arrive at the same time are answered in one call.

A prediction of 64 rows takes as long as one of a single row: requests that arrive while a batch is
computed form the next batch. No request waits for others to arrive.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar, final

Item = TypeVar("Item")
Result = TypeVar("Result")


@final
class Batcher(Generic[Item, Result]):
    """Collect items on the event loop and answer them in a thread.

    Parameters
    ----------
    answer
        Function from items to their results; if it fails, it is called for each item.
    size
        Function from an item to its size.
    most
        Largest total size of a batch; a larger item is a batch of its own.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Item]], Sequence[Result]],
        size: Callable[[Item], int],
        most: int,
    ):
        self.answer, self.size, self.most = answer, size, most
        self.waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="sigmax-batches")
        self.task: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Result:
        """Result of one item."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self.waiting.append((item, future))
        task = self.task
        if task is None or task.done() or task.get_loop() is not loop:  # which may be closed
            self.task = loop.create_task(self.work())
        return await future

    async def work(self) -> None:
        """Answer batches until no item is left."""
        loop = asyncio.get_running_loop()
        while batch := self.next_batch():
            items = [item for item, _ in batch]
            results = await loop.run_in_executor(self.thread, self.results, items)
            for (_, future), (result, error) in zip(batch, results, strict=True):
                if future.done():  # the request was cancelled
                    continue
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)

    def next_batch(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        """Items in the order of their arrival, without cancelled ones."""
        batch, total = [], 0
        while self.waiting:
            item, future = self.waiting[0]
            if not future.done():
                total += self.size(item)
                if batch and total > self.most:
                    break
                batch.append((item, future))
            self.waiting.popleft()
        return batch

    def results(self, items: list[Item]) -> list[tuple[Any, Exception | None]]:
        """Result or error of each item."""
        try:
            return [(result, None) for result in self.answer(items)]
        except Exception as error:
            if len(items) == 1:
                return [(None, error)]
            return [self.results([item])[0] for item in items]
