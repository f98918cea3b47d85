"""Defects that are planted in the code itself: streams, shufflers, kernels, runtimes, curators."""

import dataclasses
import shutil
import tempfile
import weakref
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from shuffle_sim.execution import setup
from shuffle_sim.execution.processes import ProcessesRuntime
from shuffle_sim.protocol.base import Query
from shuffle_sim.roles import Shuffler, UserShard, block_rows, deployment, onion, pools, users
from shuffle_sim.roles.deployment import Deployment
from shuffle_sim.sampling import bits, carries, kernels, randomness, shuffling
from shuffle_sim.sampling.chacha import ChaCha20
from shuffle_sim.wire.frames import Kind, parse, split_frames

from .randomizers import D

# Roles


def rounds_beside_blocks(patch):
    """A round and a block are one number, of 10 bits for the block."""

    def streamed(self, round_index, role, index):
        return randomness.stream(self.entropy, 0, role, (round_index << 10) + index, self.generator)

    patch.setattr(Deployment, "stream", streamed)


def lengths_of_other_rows(patch):
    """Where a cohort begins inside of a piece, rows are clipped by lengths of those before."""
    arranged, admitted = kernels.arranged, users.admitted
    last: list[Any] = [None]

    def noted(rows, room=None):
        columns, squares = arranged(rows, room)
        last[0] = last[0] if squares is None else squares
        return columns, squares

    def by_others(values, randomizer, squares=None):
        if squares is None and last[0] is not None and len(last[0]) > len(values):
            squares = last[0][: len(values)]
        return admitted(values, randomizer, squares)

    patch.setattr(kernels, "arranged", noted)
    patch.setattr(users, "admitted", by_others)


def later_pieces_as_they_are(patch):
    """Rows beyond the first piece of a block are not clipped."""
    true, clipped = UserShard._chunks, users.admitted
    later = [False]

    def chunks(self, block):
        for each in true(self, block):
            later[0] = each.first > self._span(block)[0]
            yield each

    def admitted(values, randomizer, squares=None):
        found, *counted = clipped(values, randomizer, squares)
        finite = later[0] and not counted[1]
        return (np.asarray(values, float) if finite else found), *counted

    patch.setattr(UserShard, "_chunks", chunks)
    patch.setattr(users, "admitted", admitted)


class StreamsOfHalfTheBlocks(UserShard):
    """Two blocks draw from one stream."""

    def _answer_block(self, broadcast, block):
        frames, record = super()._answer_block(broadcast, block // 2 * 2)
        if block % 2 and frames:
            pieces = [parse(data) for data in split_frames(b"".join(frames))]
            frames = [replace(each, index=block).tobytes() for each in pieces]
        return frames, record


class LosesTheLast(UserShard):
    """The last report of a block is that of the first."""

    def answer(self, broadcast, blocks=None):
        batch, record = super().answer(broadcast, blocks)
        frames = []
        for frame in map(parse, split_frames(batch)):
            size = len(frame.payload) // frame.reports
            payload = frame.payload[:-size] + frame.payload[:size]
            frames.append(replace(frame, payload=payload) if frame.kind is Kind.REPORTS else frame)
        return b"".join(each.tobytes() for each in frames), record


class AddsOnes(Shuffler):
    """The view has more ones than were sent."""

    def view(self, broadcast, start, stop):
        view, record = super().view(broadcast, start, stop)
        frame = parse(view)
        payload = frame.payload[:8] + b"\xff" + frame.payload[9:]
        return replace(frame, payload=payload).tobytes(), record


class OrderUnderOtherLabels(Shuffler):
    """Mixes label 0 only."""

    def view(self, broadcast, start, stop):
        view, record = super().view(broadcast, start, stop)
        frame = parse(view)
        rows = np.frombuffer(frame.payload[8:], np.uint8).reshape(D, -1).copy()
        rows[1:].sort(axis=1)
        return replace(frame, payload=frame.payload[:8] + rows.tobytes()).tobytes(), record


class OrderOfShards(Shuffler):
    """Several shards keep what came to them."""

    def collect(self, broadcast, batches):
        shards = self._deployment.shuffler_shards
        if shards == 1:
            return super().collect(broadcast, batches)
        now = self._at(broadcast)
        record = now.inbox.take(batches, now.pool)
        return *[b""] * shards, replace(record, shares=Counter({self._shard: now.pool.size}))


class CountDependsOnDatum(UserShard):
    """A user whose bits are mostly ones leaves its last byte away."""

    def answer(self, broadcast, blocks=None):
        batch, record = super().answer(broadcast, blocks)
        frames = [parse(data) for data in split_frames(batch)]
        cut = [replace(f, payload=f.payload[:-1]) if f.kind is Kind.REPORTS else f for f in frames]
        return b"".join(f.tobytes() for f in cut), record


class NoiseReused(UserShard):
    """Draws the noise of every odd round from the stream of the round before."""

    def _answer_block(self, broadcast, block):
        before = replace(broadcast.context, round=broadcast.context.round // 2)
        pieces, record = super()._answer_block(replace(broadcast, context=before), block)
        return [
            replace(parse(data), context=broadcast.context).tobytes()
            for data in split_frames(b"".join(pieces))
        ], record


class KeepsOrder(Shuffler):
    """Hands the ones on before the zeros, as the users listed them."""

    def view(self, broadcast, start, stop):
        view, record = super().view(broadcast, start, stop)
        frame = parse(view)
        bits = np.unpackbits(np.frombuffer(frame.payload[8:], np.uint8).reshape(D, -1), axis=1)
        ordered = np.packbits(-np.sort(-bits.astype(np.int8), axis=1), axis=1)
        return replace(frame, payload=frame.payload[:8] + ordered.tobytes()).tobytes(), record


# Streams: what of the key is looked at


def keyed(change):
    """Every stream is that of another key."""

    def plant(patch):
        true = randomness.stream

        def other(entropy, round_index, role, index, generator="sfc64"):
            first, second, third, last = change(entropy, round_index, role, index)
            return true(first, second, third, last, generator)

        patch.setattr(deployment, "stream", other)

    return plant


def words_taken_twice(patch):
    """Single words and arrays of the cryptographic generator are taken of one key's two ciphers."""
    true = ChaCha20.__init__

    def init(self, key):
        true(self, key)
        other = ChaCha20.__new__(ChaCha20)
        true(other, key)
        self._words = other._words

    patch.setattr(ChaCha20, "__init__", init)


def few_seeds(patch):
    """A stream begins with 32 bits of its key."""

    def stream(entropy, *place):
        sequence = np.random.SeedSequence(entropy, spawn_key=place[:3])
        return np.random.Generator(np.random.SFC64(int(sequence.generate_state(1)[0])))

    patch.setattr(deployment, "stream", stream)


def amid_the_round_before(patch):
    """Streams of odd rounds begin 8 words into those of the round before."""
    true = randomness.stream

    def stream(entropy, round_index, role, *more):
        made = true(entropy, round_index - round_index % 2, role, *more)
        made.bit_generator.random_raw(8 * (round_index % 2))
        return made

    patch.setattr(deployment, "stream", stream)


def for_role(role, change):
    """The same, of one role's streams only."""
    return keyed(lambda *key: change(*key) if key[2] is role else key)


def constant_entropy(patch):
    true = randomness.entropy_of
    patch.setattr(setup, "entropy_of", lambda seed: 7 if seed is None else true(seed))


def small_entropy(patch):
    true = randomness.entropy_of
    patch.setattr(setup, "entropy_of", lambda seed: true(seed) % 2**20)


# The shuffler


def permuting(by):
    def plant(patch):
        true = shuffling.permuted
        patch.setattr(pools, "permuted", lambda parts, rng: by(true, parts, rng))

    return plant


def same_twice(true, parts, rng):
    return true(parts, np.random.default_rng(5))


def parts_alone(true, parts, rng):
    return np.concatenate([rng.permutation(part) for part in parts])


def large_symbols_stay(true, parts, rng):
    row = np.concatenate(parts)
    moved = row <= np.median(row)
    row[moved] = rng.permutation(row[moved])
    return row


def odd_after_even(true, parts, rng):
    row = np.concatenate(parts)
    return np.concatenate([rng.permutation(row[::2]), rng.permutation(row[1::2])])


def rolled(true, parts, rng):
    row = np.concatenate(parts)
    return np.roll(row, rng.integers(len(row)))


def half_of_many(true, parts, rng):
    row = true(parts, rng)
    if len(row) >= 1 << 17:
        row[: len(row) // 2] = np.concatenate(parts)[: len(row) // 2]
    return row


def arranging(by):
    def plant(patch):
        true = shuffling.arrange
        patch.setattr(pools, "arrange", lambda ones, size, rng: by(true, ones, size, rng))

    return plant


def same_places(true, ones, size, rng):
    return true(ones, size, np.random.default_rng(5))


def of_few_seeds(true, ones, size, rng):
    return true(ones, size, np.random.default_rng(int(rng.integers(1 << 17))))


def ones_in_front(true, ones, size, rng):
    return np.packbits(np.arange(size) < ones)


def in_runs(true, ones, size, rng):
    """Ones come in runs of up to eight."""
    row = np.arange(size) < ones
    whole = size // 8 * 8
    row[:whole] = rng.permutation(row[:whole].reshape(-1, 8)).ravel()
    return np.packbits(row)


def adding_ones(patch):
    """A chunk from another shard comes with a one more."""
    true = pools.BitPool.take

    def take(self, payload):
        true(self, payload)
        self._ones[0] += 1

    patch.setattr(pools.BitPool, "take", take)


def boxes_in_order(patch):
    patch.setattr(onion, "order", lambda size, rng: np.arange(size, dtype=np.uint32))


def boxes_by_round(patch):
    true = shuffling.order
    patch.setattr(onion, "order", lambda size, rng: true(size, np.random.default_rng(size)))


# Kernels


def same_lanes(patch):
    """The compiled noise bits begin with the same state each time."""
    state = np.random.default_rng(3).integers(0, 2**63, (4, 16)).astype(np.uint64)
    patch.setattr(bits, "lanes", lambda rng: (state.copy(), np.empty((64, 16), np.uint64)))


def splitting(where, least):
    """From so many users on, numbers of the first come again in the carry kernel `where`."""

    def plant(patch):
        from protocols.sums import carry
        from shuffle_sim.sampling.kernels import compiling

        true = carries.split_numbers

        def split(columns, *given):
            found = true(columns, *given)
            if compiling() == (where == "compiled") and found.shape[2] >= least:
                half = found.shape[2] // 2
                found[..., half : 2 * half] = found[..., :half]
            return found

        patch.setattr(carry, "split_numbers", split)

    return plant


def pieces_again(patch):
    """Of a call's numbers those of the first piece come again in the others, across columns."""
    from protocols.sums import carry

    true = carries.split_numbers

    def split(columns, *given):
        found = true(columns, *given)
        flat = np.ascontiguousarray(found).reshape(len(found), -1)
        for start in range(1 << 14, flat.shape[1], 1 << 14):
            piece = flat[:, start : start + (1 << 14)]
            piece[...] = flat[:, : piece.shape[1]]
        return flat.reshape(found.shape)

    patch.setattr(carry, "split_numbers", split)


# Data and queries


def first_row_for_all(patch):
    """Rows that are read anew are all that of the first."""
    true = block_rows.BlockRows._read

    def read(self, start, stop):
        for chunk in true(self, start, stop):
            same = np.repeat(chunk.rows[:1], len(chunk.rows), axis=0)
            yield (
                chunk
                if self._population.resident
                else block_rows.Chunk(chunk.first, np.asfortranarray(same))
            )

    patch.setattr(block_rows.BlockRows, "_read", read)


def no_squares_come(patch):
    """Rows that the compiled kernel brings into columns are said to have no length."""
    true = kernels.arranged

    def arranged(rows, room=None):
        columns, squares = true(rows, room)
        return columns, None if squares is None else 0 * squares

    patch.setattr(kernels, "arranged", arranged)


@dataclasses.dataclass(frozen=True)
class Centred(Query):
    """The datum less the mean of the others that are asked with it."""

    def __call__(self, rows):
        return rows - rows.mean(axis=0)


# Runtimes


def rows_in_files(patch):
    """Rows for workers, in a file that nobody removes."""
    folder = tempfile.mkdtemp()
    weakref.finalize(patch, shutil.rmtree, folder, ignore_errors=True)
    patch.setattr(tempfile, "tempdir", folder)
    true = ProcessesRuntime.shared

    def shared(self, population):
        np.save(f"{folder}/rows.npy", population.rows(0, population.users))
        return true(self, population)

    patch.setattr(ProcessesRuntime, "shared", shared)


def blind(runtime):
    """Its roles get entropy of their own making: none."""

    def plant(patch):
        true = runtime.host

        def host(self, role, *arguments):
            if isinstance(arguments[0], Deployment) and role is UserShard:
                arguments = replace(arguments[0], entropy=0), *arguments[1:]
            return true(self, role, *arguments)

        patch.setattr(runtime, "host", host)

    return plant


def entropy_by_one(patch):
    """The shuffler could compute that of users from its own."""
    patch.setattr(
        Deployment, "of_shuffler", property(lambda self: replace(self, entropy=self.entropy + 1))
    )
