"""StreamingListener: the methods that are called when something happens to a program or a batch."""

from __future__ import annotations

from typing import Any


class StreamingListener:
    """Base class of listeners; override what you need. Batches are described by the methods that Spark's have.

    There are no receivers that run on other machines, so the methods about them are never called: a failure of an input
    ends the program with its error.

    >>> class Times(StreamingListener):
    ...     def onBatchCompleted(self, batchCompleted):
    ...         print(batchCompleted.batchInfo().batchTime().milliseconds())
    """

    def __init__(self) -> None:
        pass

    def onStreamingStarted(self, streamingStarted: Any) -> None:
        """Is called when the program has been started."""

    def onReceiverStarted(self, receiverStarted: Any) -> None:
        """Is not called."""

    def onReceiverError(self, receiverError: Any) -> None:
        """Is not called."""

    def onReceiverStopped(self, receiverStopped: Any) -> None:
        """Is not called."""

    def onBatchSubmitted(self, batchSubmitted: Any) -> None:
        """Is called when a batch is about to run."""

    def onBatchStarted(self, batchSubmitted: Any) -> None:
        """Is called when a batch begins to run."""

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        """Is called when all outputs of a batch are done."""

    def onOutputOperationStarted(self, outputOperationStarted: Any) -> None:
        """Is called when an output operation of a batch begins."""

    def onOutputOperationCompleted(self, outputOperationCompleted: Any) -> None:
        """Is called when an output operation of a batch is done, or has failed."""
