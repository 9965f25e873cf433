"""Takes forgotten pseudonyms out of the committed states, counts and quarantine.

This is the job of an intent that forgets. It runs in the driver's process, without a runner, since
a pseudonym is in one part of one budget period. It writes files of an attempt, as a job does, which
depend only on what is committed and on the intent: after a crash it is done again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace

from mechanisms.coins import shard_of
from pipelines.aggregation import counts, quarantine
from pipelines.aggregation.counts import Matrix, WindowKey
from pipelines.bounded.job import Job
from pipelines.storage import files
from pipelines.storage.intent import Intent
from pipelines.storage.manifest import Quarantined
from pipelines.storage.output import JobOutput
from pipelines.storage.states import StoredStates
from sotto.wire.decode import Reject


def forget(job: Job, intent: Intent) -> JobOutput:
    """Write states, counts and quarantine without the pseudonyms of an intent; return the output.

    Raises AggregationError or FormatError if a committed file is missing or damaged.
    """
    pseudonyms = tuple(map(bytes.fromhex, intent.forget))
    files.make_folder(job.files.attempt(job.attempt))
    done: list[JobOutput] = []
    pages: defaultdict[int, list[tuple[WindowKey, Matrix]]] = defaultdict(list)
    rejects: list[Reject] = []
    registry, manifest = job.registry, job.manifest
    states = StoredStates(job.files, registry, manifest.key)
    shards = {each: shard_of(each, registry.shards) for each in pseudonyms}
    for (period, part), stored in sorted(manifest.states.items()):
        mine = [each for each in pseudonyms if shards[each] % manifest.parts[period] == part]
        taken = states.forget(period, part, stored, mine, job.generation, intent.clock or 0)
        if taken is None:
            continue
        written = job.write(taken.target, taken.content)
        at = {(period, part): taken.stored}
        done.append(replace(written, states=at, tally=taken.stepped.tally))
        rejects += taken.stepped.rejects
        for window, change in taken.stepped.changes.items():
            pages[counts.page_of(window, registry.period)].append((window, change))
    for page, changes in sorted(pages.items()):
        done.append(job.write_page(page, changes))
    if rejects:
        packed = quarantine.combine([quarantine.pack(rejects)])
        written = job.write_quarantine(str(job.generation), packed)
        done.append(replace(written, rejects=quarantine.numbers(rejects)))
    for entry in manifest.quarantine:
        left = list(_without(job, entry, pseudonyms))
        if left:
            name = f"{entry.generation}.{job.generation}"
            written = job.write_quarantine(name, quarantine.pack(left))
            done.append(replace(written, rewritten=frozenset([entry.generation])))
    return JobOutput.sum(done)


def _without(job: Job, entry: Quarantined, pseudonyms: Collection[bytes]) -> Iterator[Reject]:
    """Yield all rejects of a quarantine file that has messages of pseudonyms, without their bytes.

    Numbers and reasons stay, and every reject keeps its place. Nothing is yielded of a file that
    has no such message.
    """
    path = job.files.quarantine(entry)
    with files.committed(path):
        content = bytes(files.load(path, quarantine.KIND))
    if not any(each in content for each in pseudonyms):
        return
    for reject in quarantine.unpack(content):
        theirs = any(each in reject.message for each in pseudonyms)
        yield reject._replace(message=b"") if theirs else reject
