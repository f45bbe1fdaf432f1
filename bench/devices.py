# SPDX-License-Identifier: Apache-2.0
"""How calls are timed: CUDA graphs on a GPU, a clock around loops on the CPU. Variants take turns, round by round."""

import statistics
import subprocess
import time

from bench.arrays import NumpyArrays, TorchArrays
from tools import sources

TARGET_US = 1000.0  # one measurement: long beside an event's 1 us, short beside the lease of a machine
ROUNDS_US = 30e3  # of all rounds of one variant together; at least LEAST_ROUNDS
LEAST_ROUNDS = 20
# For so long a board that has rested multiplies faster than it can go on to, by a tenth and more, and not all kernels alike
# (docs/measured-facts.md): rounds before that do not count, and as its clock then wanders by several percent from round to
# round, there are more of them.
WARM_US = 100e3
WARM_ROUNDS = 2  # times as many
CHAIN = 50  # dependent calls in the graph of a launch-bound case


def orders(variants, rounds):
    """The variants in another order for each round, every one of them after every other equally often, in as many rounds as
    there are variants or in twice as many (a Williams design): what one draws lowers the clock of the one after it."""
    n = len(variants)
    zigzag = [i // 2 if i % 2 == 0 else n - 1 - i // 2 for i in range(n)]
    for r in range(rounds):
        order = [variants[(i + r) % n] for i in zigzag]
        yield order if r // n % 2 == 0 else order[::-1]


class Variant:
    """One way to do the work of a case: a callable per set of arguments. selected: the library's own choice."""

    def __init__(self, name, calls, selected=False):
        self.name, self.calls, self.selected = name, calls, selected
        self.graph = None
        self.samples = []


class CudaDevice:
    """Times torch streams; einkorn follows torch's current stream."""

    kind = "cuda"

    def __init__(self, rounds):
        import torch

        self.torch = torch
        self.rounds = rounds
        self.arrays = TorchArrays()
        # Warm-up, capture and replay share this stream, so that no workspace has to move between streams.
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        properties = torch.cuda.get_device_properties(0)
        self.full_name = properties.name
        self.l2_bytes = properties.L2_cache_size
        self.cuda = torch.version.cuda

    @property
    def name(self):
        return sources.gpu_folder(self.full_name)

    @property
    def driver(self):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip().split("\n")[0]

    def sets(self, case, touched):
        """Argument sets to rotate over, so that none is left in L2 when its turn comes again. touched: the bytes of a set that
        every variant reads or writes."""
        if "launch" in case.tags:
            return 1
        enough = int(2 * self.l2_bytes // touched) + 1
        return max(enough, 2 if case.set_bytes < 200e6 else 1)

    def capture(self, variant, count):
        """Record `count` calls, in turn over the sets. Outputs that torch allocates stay alive for a whole turn, so
        that they are rotated too."""
        calls, keep = variant.calls, [None] * len(variant.calls)
        # Twice: the second call of a chain reads what the first has made, for which torch.compile may compile again.
        for i in range(2 * len(calls)):
            keep[i % len(calls)] = calls[i % len(calls)]()
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        graph.capture_begin()
        try:
            for i in range(count):
                keep[i % len(calls)] = calls[i % len(calls)]()
        finally:
            graph.capture_end()
        variant.graph = graph

    def guesses_us(self, case):
        """What a good kernel takes by its bytes, 4 TB/s, and by its flops, 600 TFLOP/s in 16-bit formats, 40 in f32."""
        return case.bytes / 4.0e6, case.flops / (40e6 if case.dtypes.get("T") == "f32" else 600e6)

    def guess_us(self, case):
        return max(*self.guesses_us(case), 1.5)

    def timed_replays(self, calls, count, times, samples):
        """Yields after each of `times` replays of a graph of `count` calls, the time of one call added to samples."""
        variant = Variant("", calls)
        self.capture(variant, count)
        start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(times):
            start.record()
            variant.graph.replay()
            stop.record()
            stop.synchronize()
            samples.append(start.elapsed_time(stop) * 1e3 / count)
            yield

    def once_us(self, call):
        """Microseconds of a single call, the host's part with it: enough to know what is hopeless."""
        start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e3

    def replays(self, variant, count, reset, times):
        """Yields after each of `times` replays of a graph of `count` calls, each from the state that reset() makes."""
        reset()
        self.capture(variant, count)
        for _ in range(times):
            reset()
            variant.graph.replay()
            self.torch.cuda.synchronize()
            yield
        variant.graph = None

    def measure(self, variants, case):
        """Fills variant.samples with microseconds a call, one for each round. Returns (variant, error) of those that
        can't be captured."""
        chained = "launch" in case.tags
        sets = max(len(v.calls) for v in variants)
        guess = self.guess_us(case)
        count = CHAIN if chained else min(max(sets, round(TARGET_US / guess / sets) * sets), 50 * sets)
        repeats = 10 if chained else 1
        failed = []
        for variant in variants:
            try:
                self.capture(variant, count)
                variant.graph.replay()
            except Exception as error:  # whatever torch or the library raises; the caller reports it
                failed.append((variant, error))
        variants = [v for v in variants if v.graph]
        events = []
        least = self.rounds if chained else max(round(ROUNDS_US / (count * guess)), LEAST_ROUNDS)
        rounds, warm = min(self.rounds, least), 0
        by_bytes, by_flops = self.guesses_us(case)
        if variants and not chained and by_flops > by_bytes:
            rounds, warm = rounds * WARM_ROUNDS, round(WARM_US / (count * guess * len(variants)))
        for r, order in enumerate(orders(variants, warm + rounds), -warm):
            for variant in order:
                start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                for _ in range(repeats):
                    variant.graph.replay()
                stop.record()
                if r >= 0:
                    events.append((variant, start, stop))
        self.torch.cuda.synchronize()
        for variant, start, stop in events:
            variant.samples.append(start.elapsed_time(stop) * 1e3 / (count * repeats))
        for variant in variants:
            variant.graph = None
        return failed

    def ceilings(self):
        """TB/s of a plain copy (bytes read + written) and fill of 256 MB, as torch does them."""
        # Not more: a copy of 1 GB in a graph goes to a copy engine, which is slower than the SMs.
        torch, size = self.torch, 1 << 28
        a, b = (torch.randint(0, 255, (size,), dtype=torch.uint8, device="cuda") for _ in range(2))
        copy, fill = self.median_us(lambda: b.copy_(a), 4), self.median_us(lambda: b.fill_(7), 4)
        return {"copy_tb_s": round(2 * size / copy * 1e-6, 3), "fill_tb_s": round(size / fill * 1e-6, 3)}

    def median_us(self, call, count):
        samples = []
        for _ in self.timed_replays([call], count, 15, samples):
            pass
        return statistics.median(samples)

    def dependent_us(self):
        """[of the least call of torch that waits for another]: what a process has done before can add to it."""
        x = self.torch.zeros(32, device="cuda")
        return [round(self.median_us(lambda: x.add_(1), CHAIN), 3)]

    def between_cases(self):
        """Give memory back: where a case's tensors lie must not depend on the cases before it. Raises if a kernel has
        broken the device for all that follows."""
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()


class CpuDevice:
    """Small sizes and NumPy, to run the machinery and to compare CPU rows."""

    kind = "cpu"
    name = "cpu"
    full_name = "CPU"
    driver = cuda = ""
    l2_bytes = 0

    def __init__(self, rounds):
        self.rounds = rounds
        self.arrays = NumpyArrays()

    def sets(self, case, touched):
        return 1

    def once_us(self, call):
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e6

    def measure(self, variants, case):
        for variant in variants:
            variant.calls[0]()
        for order in orders(variants, self.rounds):
            for variant in order:
                start = time.perf_counter()
                count = 0
                while count < 3 or time.perf_counter() - start < 1e-3:
                    variant.calls[0]()
                    count += 1
                variant.samples.append((time.perf_counter() - start) * 1e6 / count)
        return []

    def ceilings(self):
        a = self.arrays.randn((1 << 24,), "f32")
        b = self.arrays.empty(a.shape, "f32")
        variant = Variant("copy", [lambda: self.arrays.assign(b, a)])
        for _ in range(5):
            start = time.perf_counter()
            b[...] = a
            variant.samples.append(time.perf_counter() - start)
        return {"copy_tb_s": round(2 * a.nbytes / statistics.median(variant.samples) * 1e-12, 4)}

    def dependent_us(self):
        return []

    def between_cases(self):
        pass
