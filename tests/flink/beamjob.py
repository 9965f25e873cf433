"""Beam pipelines for a session to run, each started as a program of its own.

``grouped OUT`` adds up numbers by key into a file. ``counted OUT`` reads numbers without end,
counts them by key in state, and appends a line (count, largest number) to the file of their key
each time that a timer fires. Numbers go to keys in turns, so each line says whether every number
was counted once.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Duration, Timestamp

KEYS = 4
#: Numbers that one call reads, and seconds until the next.
BLOCK, PAUSE = 100, 0.1


class Endless(OffsetRestrictionTracker):
    def is_bounded(self):
        return False


class Numbers(RestrictionProvider):
    def initial_restriction(self, element):
        return OffsetRange(0, 2**62)

    def create_tracker(self, restriction):
        return Endless(restriction)

    def restriction_size(self, element, restriction):
        return 1

    def truncate(self, element, restriction):
        return None


NUMBERS = Numbers()


class Read(beam.DoFn):
    @beam.DoFn.unbounded_per_element()
    def process(self, element, tracker=beam.DoFn.RestrictionParam(NUMBERS)):
        start = tracker.current_restriction().start
        for number in range(start, start + BLOCK):
            if not tracker.try_claim(number):
                return
            yield number % KEYS, number
        tracker.defer_remainder(Duration.of(PAUSE))


class Count(beam.DoFn):
    COUNT = ReadModifyWriteStateSpec("count", VarIntCoder())
    LARGEST = ReadModifyWriteStateSpec("largest", VarIntCoder())
    ARMED = ReadModifyWriteStateSpec("armed", VarIntCoder())
    TICK = TimerSpec("tick", TimeDomain.REAL_TIME)

    def __init__(self, out):
        self.out = out

    def process(
        self,
        element,
        count=beam.DoFn.StateParam(COUNT),
        largest=beam.DoFn.StateParam(LARGEST),
        armed=beam.DoFn.StateParam(ARMED),
        tick=beam.DoFn.TimerParam(TICK),
    ):
        count.write((count.read() or 0) + 1)
        largest.write(element[1])
        if not armed.read():
            armed.write(1)
            tick.set(Timestamp(time.time() + 0.5))
        return ()

    @on_timer(TICK)
    def fire(
        self,
        key=beam.DoFn.KeyParam,
        count=beam.DoFn.StateParam(COUNT),
        largest=beam.DoFn.StateParam(LARGEST),
        armed=beam.DoFn.StateParam(ARMED),
    ):
        armed.write(0)
        with open(os.path.join(self.out, str(key)), "a", encoding="ascii") as file:
            file.write(f"{count.read()} {largest.read()}\n")
        return ()


def main():
    kind, out, *rest = sys.argv[1:]
    pipeline = beam.Pipeline(options=PipelineOptions(rest))
    if kind == "grouped":
        (
            pipeline
            | beam.Create([(number % KEYS, number) for number in range(1000)])
            | beam.GroupByKey()
            | beam.MapTuple(lambda key, numbers: f"{key} {sum(numbers)}")
            | beam.io.WriteToText(out, num_shards=1, shard_name_template="")
        )
        pipeline.run().wait_until_finish()
        return
    Path(out).mkdir(exist_ok=True)
    (
        pipeline
        | beam.Create([0])
        | "Read" >> beam.ParDo(Read()).with_output_types(tuple[int, int])
        | "Count" >> beam.ParDo(Count(out))
    )
    pipeline.run()
    # The client is not needed any more; it would wait for the job.
    os._exit(0)


if __name__ == "__main__":
    main()
