#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times every row of every op that takes a case, beside PyTorch, and writes bench/results/<gpu>/<family>.json.

    bench/run.py                              all families on the GPU
    bench/run.py --family norm --quick        one family, few rounds, no torch.compile; writes nothing by itself
    bench/run.py --filter 8192x8192           cases whose op, size or model contains the words; writes nothing by itself
    bench/run.py --device cpu                 the CPU's rows on small sizes; writes nothing by itself

A result is compared with a float64 reference first; a wrong one is not timed, and the run ends with exit code 1.
Arguments rotate over more memory than L2 holds, calls are replayed from CUDA graphs, all variants of a case take turns,
products on a board that they have warmed before, and the median of the rounds counts. Cases tagged `launch` are graphs of 50 calls, each waiting for the one before.
"""

import argparse
import json
import statistics
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
# The package that was built here, where the caller has none.
sys.path += [str(ROOT / "build" / kind / "python") for kind in ("cuda", "cpu")]

from bench import cases as case_files  # noqa: E402
from bench import host, reference  # noqa: E402
from bench.devices import CpuDevice, CudaDevice, Variant  # noqa: E402
from tools import sources  # noqa: E402

CPU_CASE_BYTES = 4e6  # a case on the CPU is cut down to this
HOPELESS, LONG_US = 4, 100.0  # rows slower than this times the best, and than this, are timed by single calls
TF32_SLACK = 2.0**13  # its roundoff is 2^-11, that of f32 2^-24
BASELINE_SLACK = 16  # PyTorch rounds between the steps of what is one op here


def log(text):
    print(text, file=sys.stderr, flush=True)


class Run:
    def __init__(self, options):
        try:
            import einkorn
        except ModuleNotFoundError as e:
            if e.name != "einkorn":
                raise
            sys.exit("bench: there is no einkorn to time: ./quickstart builds it")
        self.einkorn = einkorn
        self.options = options
        rounds = 5 if options.quick else options.rounds
        self.device = CpuDevice(rounds) if options.device == "cpu" else CudaDevice(rounds)
        self.arrays = self.device.arrays
        self.contexts = {False: einkorn.Context(options.device)}
        if options.device == "cuda":
            self.contexts[True] = einkorn.Context(options.device, flags=("pdl",))
        self.tf32 = einkorn.Context(options.device, flags=("tf32",))
        self.compile_left = 0 if options.quick or options.device == "cpu" else options.compile_seconds
        self.wrong = []
        self.start = time.monotonic()

    # ---- arguments --------------------------------------------------------------------------------------------------

    def arguments(self, case):
        """One set: every argument of the op by name, tensors that are not given as None."""
        given = {t.name for t in case.tensors()}
        args = dict(case.all_attrs)
        for t in case.op.tensors:
            if t.name not in given:
                args[t.name] = None
            elif case.by_columns(t):
                make = self.arrays.empty if t.role == "out" else self.arrays.randn
                *lead, rows, columns = case.shape(t)
                args[t.name] = make((*lead, columns, rows), case.tensor_dtype(t)).swapaxes(-1, -2)
            elif t.role == "out":
                args[t.name] = self.arrays.empty(case.shape(t), case.tensor_dtype(t))
            else:
                args[t.name] = self.input(case, t)
        reference.prepare(self.arrays, args)
        return args

    def input(self, case, tensor):
        shape, dtype = case.shape(tensor), case.tensor_dtype(tensor)
        if not case.pitch or tensor.name != "x":
            return self.arrays.randn(shape, dtype)
        wide = self.arrays.randn((shape[0], case.pitch), dtype)
        return wide[:, : shape[1] * shape[2]].reshape(shape)

    def context(self, op, row, pdl=False):
        """The one that a row is run in: with TF32 only those that need it."""
        needs = row and next(k for k in self.einkorn.kernels(op) if k.name == row).needs_tf32
        return self.tf32 if needs else self.contexts[pdl]

    def call(self, case, args, pdl=False, row=None):
        function, context = getattr(self.einkorn, case.op.name), self.context(case.op.name, row, pdl)
        return lambda: function(**args, ctx=context)

    # ---- which rows, and are they right -----------------------------------------------------------------------------

    def rows(self, case, args, expected):
        """(row, selected) for each row that takes the case and is right, and the times of those that are far behind."""
        op = case.op.name
        start = {t.name: self.arrays.copy(args[t.name]) for t in case.tensors() if t.role == "inout"}

        def run(row):
            for name, values in start.items():
                self.arrays.assign(args[name], values)
            for t in case.tensors():
                if t.role == "out":
                    self.arrays.poison(args[t.name])
            context = self.context(op, row)
            context.force(op, row)
            try:
                self.call(case, args, row=row)()
            finally:
                context.force(op, None)
            return context.last_kernel()

        selected = run(None)
        found, times, best = [], {}, float("inf")
        for row in self.row_names(op):
            try:
                run(row)
            except self.einkorn.Error as error:
                log(f"    {row} refuses: {error}")
                continue
            if self.is_right(case, row, args, expected, TF32_SLACK if self.context(op, row) is self.tf32 else 1.0):
                found.append((row, row == selected))
                again = self.forced(case, row, args)
                times[row] = self.device.once_us(again)
                if times[row] < HOPELESS**2 * best:  # else no hiccup
                    times[row] = min(times[row], *(self.device.once_us(again) for _ in range(2)))
                best = min(best, times[row])
        # Of long calls those that are far behind are not timed further.
        enough = max(HOPELESS * best, LONG_US)
        behind = {row: us for row, us in times.items() if us > enough and row != selected}
        return [one for one in found if one[0] not in behind], behind

    def row_names(self, op):
        kind = self.device.kind
        names = [k.name for k in self.einkorn.kernels(op) if k.device == kind]
        return [n for n in names if not self.options.rows or any(word in n for word in self.options.rows)]

    def is_right(self, case, variant, got, expected, slack=1.0):
        dtypes = {t.name: case.tensor_dtype(t) for t in case.op.tensors}
        group = case.all_attrs.get("group", 0)
        problem = reference.check(self.arrays, got, expected, dtypes, group, slack)
        if problem:
            log(f"    {variant} is WRONG, not timed: {problem}")
            self.wrong.append(f"{case.op.name} {case.label} {case.dtype} {variant}: {problem}")
        return not problem

    # ---- variants ---------------------------------------------------------------------------------------------------

    def forced(self, case, row, args, pdl=False):
        """A call that runs this row whatever the selection says. Forcing is outside what is captured and timed on a
        GPU; on the CPU it adds well under a microsecond."""
        context, op, call = self.context(case.op.name, row, pdl), case.op.name, self.call(case, args, pdl, row)

        def forced():
            context.force(op, row)
            call()
            context.force(op, None)

        return forced

    def einkorn_variants(self, case, rows, sets, expected, saved):
        if "launch" not in case.tags:
            found = [
                Variant((row, False), [self.forced(case, row, args) for args in sets], selected)
                for row, selected in rows
            ]
            return found + self.overlapping(case, rows, sets, expected, saved) if "pdl" in case.tags else found
        pair = self.chain(case, sets[0])
        found = []
        for row, selected in rows:
            variants = [
                Variant((row, pdl), [self.forced(case, row, args, pdl) for args in pair], selected)
                for pdl in self.contexts
            ]
            found += variants if self.same_with_pdl(case, pair, variants) else variants[:1]
        return found

    def overlapping(self, case, rows, sets, expected, saved):
        """The rows again with PDL, where the device has it: no call reads what another writes, and weights are constant."""
        if True not in self.contexts:
            return []
        constant = {a.name: True for a in case.op.attrs if a.name in ("constant_b", "constant_weights")}
        steady = [{**args, **constant} for args in sets]
        outputs = [sets[0][t.name] for t in case.tensors() if t.role != "in"]
        found = []

        def reset():
            for name, values in saved.items():
                self.arrays.assign(sets[0][name], values)
            for t in case.tensors():
                if t.role == "out":
                    self.arrays.poison(sets[0][t.name])

        self.call(case, steady[0], True)()
        selected = self.contexts[True].last_kernel()
        for row, _ in rows:
            if self.context(case.op.name, row) is self.tf32:
                continue
            calls = [self.forced(case, row, a, True) for a in steady]
            variant = Variant((row, True), calls, row == selected)
            # The bits of a plain launch of the same, whatever came right before.
            reset()
            self.forced(case, row, steady[0])()
            if not self.is_right(case, row, sets[0], expected):
                continue
            want = [self.arrays.copy(x) for x in outputs]
            reset()
            for call in (*variant.calls[1:], variant.calls[0]):
                call()
            if all(bool((x == w).all()) for x, w in zip(outputs, want, strict=True)):
                found.append(variant)
            else:
                log(f"    {row} is WRONG with PDL, not timed")
                self.wrong.append(f"{case.op.name} {case.label} {case.dtype} {row}: differs with PDL")
        return found

    def same_with_pdl(self, case, pair, variants):
        """Does an overlapping launch give the bits of a plain one? Few calls, from fresh data, many times: a value read
        too early would show before the chain settles."""
        if self.device.kind != "cuda":
            return True
        state = [pair[0]["x"], pair[1]["x"], *(pair[0][t.name] for t in case.tensors() if t.role == "inout")]
        start = [self.arrays.randn(tuple(s.shape), case.dtypes["T"]) for s in state]

        def reset():
            for tensor, values in zip(state, start, strict=True):
                self.arrays.assign(tensor, values)

        want = None
        for variant, times in zip(variants, (1, 20), strict=True):
            for _ in self.device.replays(variant, 4, reset, times):
                have = [self.arrays.f64(s) for s in state]
                want = want or have
                if not all(bool((h == w).all()) for h, w in zip(have, want, strict=True)):
                    log(f"    {variant.name[0]} is WRONG with PDL, not timed")
                    self.wrong.append(f"{case.op.name} {case.label} {case.dtype} {variant.name[0]}: differs with PDL")
                    return False
        return True

    def chain(self, case, args):
        """Two argument sets that feed each other: the y of one is the x, or the first part of the x, of the other."""
        x, dim = args["x"], args["y"].shape[-1]
        other = self.arrays.copy(x)
        return {**args, "y": other[..., :dim]}, {**args, "x": other, "y": x[..., :dim]}

    def baselines(self, case, sets, expected, saved):
        """PyTorch variants. `saved` are the inout tensors of the first set as the reference saw them."""
        if self.device.kind != "cuda":
            return []
        from bench import baselines

        found = []
        if "compile" in case.tags and self.compile_left < 0:
            log("    torch_compile is left out: the time for compiling is spent (--compile-seconds)")
        for name in baselines.names(case.op.name, "compile" in case.tags and self.compile_left > 0):
            start = time.monotonic()
            try:
                variant = self.baseline(baselines, case, name, sets, expected, saved)
            except Exception as error:  # a baseline that PyTorch can't run is left out, and the log says so
                log(f"    {name} is left out: {type(error).__name__}: {str(error).splitlines()[0]}")
                continue
            finally:
                if name == "torch_compile":
                    self.compile_left -= time.monotonic() - start
            if variant:
                found.append(variant)
        return found + self.cublaslt(case, sets, expected)

    def cublaslt(self, case, sets, expected):
        """The fastest algorithm of cuBLASLt, where the op is one call of it."""
        from bench import cublaslt

        if not cublaslt.Product.fits(case):
            return []
        try:
            calls = cublaslt.best(case, self.device, sets, log)
        except (OSError, RuntimeError) as error:
            log(f"    cublaslt is left out: {error}")
            return []
        self.arrays.poison(sets[0]["d" if "d" in sets[0] else "y"])
        got = calls[0]()
        return [Variant("cublaslt", calls)] if self.is_right(case, "cublaslt", got, expected) else []

    def has_plain(self, case):
        return case.op.name == "gemm_epilogue" and not case.all_attrs["gated"]

    def touched(self, case):
        """Bytes of a set of arguments that every variant reads or writes: a plain product leaves bias and residual alone."""
        some = [t for t in case.tensors() if not (t.optional and self.has_plain(case))]
        return sum(case.set_bytes_of(t) for t in some)

    def plain(self, case, sets):
        """Of an epilogue, the library's own product without it: what it costs is then not the difference of two moments."""
        if not self.has_plain(case):
            return []
        gemm, context = self.einkorn.gemm, self.contexts[False]
        return [Variant("plain", [lambda a=a: gemm(a["a"], a["b"], d=a["y"], ctx=context) for a in sets])]

    def baseline(self, baselines, case, name, sets, expected, saved):
        op, extra = case.op.name, case.dtypes
        if name == "torch_compile":
            import torch._functorch.config

            self.device.torch._dynamo.reset()
            # A gradient that runs many times must not give away what the forward saved.
            torch._functorch.config.donated_buffer = False
        forward = baselines.forward(op, name)
        for k, values in saved.items():
            self.arrays.assign(sets[0][k], values)
        calls = [baselines.build(op, forward, {**args, **extra}) for args in sets]
        if not self.is_right(case, name, calls[0](), expected, BASELINE_SLACK):
            return None
        if "launch" in case.tags:
            calls = [self.torch_chain(baselines, case, forward, {**sets[0], **extra})]
        return Variant(name, calls)

    def torch_chain(self, baselines, case, forward, args):
        """A call that takes the y of the call before. A gated op gets its gate and up as two tensors, so that nothing
        has to be copied between calls."""
        if args["y"].shape != args["x"].shape:
            gate, up = args["x"].chunk(2, -1)
            args = {**args, "x": gate.contiguous(), "up": up.contiguous(), "layout": "separate"}
        a = baselines.Arguments(args)
        held = []

        def step():
            # What the first captured call reads must live as long as the graph; inside, torch's pool sees to it.
            a.x = forward(a)["y"]
            if not self.device.torch.cuda.is_current_stream_capturing():
                held.append(a.x)

        return step

    # ---- one case ---------------------------------------------------------------------------------------------------

    def case(self, case):
        log(f"  {case.op.name} {case.label} {case.dtype}")
        sets = [self.arguments(case) for _ in range(self.device.sets(case, self.touched(case)))]
        saved = {t.name: self.arrays.copy(sets[0][t.name]) for t in case.tensors() if t.role == "inout"}
        expected = reference.compute(self.arrays, case.op.name, sets[0], case.dtypes)
        expected = {k: v for k, v in expected.items() if sets[0].get(k) is not None}
        rows, behind = self.rows(case, sets[0], expected)
        if not rows:
            return []
        baselines = self.baselines(case, sets, expected, saved) + self.plain(case, sets)
        variants = self.einkorn_variants(case, rows, sets, expected, saved)
        del expected, saved
        for variant, error in self.device.measure(variants + baselines, case):
            log(f"    {variant.name} is left out: {error}")
            if variant in variants:
                self.wrong.append(f"{case.op.name} {case.label} {case.dtype} {variant.name}: {error}")
        times = {v.name: round(statistics.median(v.samples), 3) for v in baselines if v.samples}
        for row, us in behind.items():
            variants.append(Variant((row, False), []))
            variants[-1].samples.append(us)
        return [self.entry(case, v, times) for v in variants if v.samples]

    def entry(self, case, variant, baselines):
        row, pdl = variant.name
        us = statistics.median(variant.samples)
        return {
            "op": case.op.name,
            "case": case.label,
            "model": case.model,
            "dtype": case.dtype,
            "dims": case.result_dims,
            "attrs": case.attrs,
            "launch": "launch" in case.tags,
            "row": row,
            "selected": variant.selected,
            "pdl": pdl,
            "us": round(us, 3),
            "rounds": len(variant.samples),  # 1: far behind, and timed by single calls
            "us_range": [round(min(variant.samples), 3), round(max(variant.samples), 3)],  # of the rounds
            "bytes": case.bytes,
            "tb_s": round(case.bytes / us * 1e-6, 4),
            "tflop_s": round(case.flops / us * 1e-6, 4),
            "of_ceiling": round(case.bytes / us * 1e-6 / self.ceilings["copy_tb_s"], 4),
            "baselines": baselines,
        }

    def family(self, family, ops):
        cases = case_files.load(family, ops)
        words = self.options.filter or []
        cases = [c for c in cases if all(w in f"{c.op.name} {c.label} {c.dtype} {c.model}" for w in words)]
        if self.device.kind == "cpu":
            cases = {(s.op.name, s.label, s.dtype): s for s in (case_files.shrink(c, CPU_CASE_BYTES) for c in cases)}
            cases = list(cases.values())
        if not cases:
            return None
        log(f"{family}: {len(cases)} cases")
        entries = []
        dependent = self.device.dependent_us()
        for case in cases:
            try:
                entries += self.case(case)
            except Exception as error:  # the other cases still count
                traceback.print_exc()
                self.wrong.append(f"{case.op.name} {case.label} {case.dtype}: {type(error).__name__}: {error}")
            self.device.between_cases()
        dependent += self.device.dependent_us()
        return {
            "gpu": self.device.name,
            "driver": self.device.driver,
            "cuda": self.device.cuda,
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "commit": sources.commit(),
            "source_hash": sources.family_hash(family, "bench"),
            "ceilings": self.ceilings,
            "dependent_us": dependent,  # before the first case and after the last
            "cases": entries,
            "host": [],
        }

    def all(self):
        ops = case_files.load_ops()
        families = self.options.family or case_files.families(ops)
        self.ceilings = self.device.ceilings()
        log(f"{self.device.full_name}: {self.ceilings}")
        results = {}
        for family in families:
            result = self.family(family, ops)
            if result:
                results[family] = result
                self.write(family, result)
        if self.device.kind == "cuda":
            # Last: after it every kernel of the process that waits for another begins up to 0.35 us later.
            extra, entries = host.measure(self.einkorn, self.device, sources.build_folder(), log)
            self.ceilings |= extra
            for family, result in results.items():
                result["host"] = entries if family == host.FAMILY else []
                self.write(family, result)
        return results

    def write(self, family, result):
        """A part of a family, a quick run or one on the CPU is written only where the caller says."""
        partial = self.options.filter or self.options.rows or self.options.quick or self.device.kind == "cpu"
        folder = self.options.out or (None if partial else ROOT / "bench" / "results" / self.device.name)
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{family}.json").write_text(dump(result))


def dump(result):
    """JSON with one line for each case, so that a diff shows what moved."""
    lists = {k: result[k] for k in ("cases", "host")}
    head = json.dumps({k: v for k, v in result.items() if k not in lists}, indent=1)[:-2]
    for name, items in lists.items():
        lines = ",\n".join("  " + json.dumps(item) for item in items)
        head += f',\n "{name}": [\n{lines}\n ]' if items else f',\n "{name}": []'
    return head + "\n}\n"


def table(results):
    """The selected rows, one line each."""
    lines = [f"{'op':22}{'case':34}{'dtype':11}{'row':34}{'us':>9}{'TB/s':>7}{'of copy':>8}{'TFLOP/s':>8}"]
    others = ("torch", "torch_compile", "cublaslt", "cudnn")
    lines[0] += "".join(f"{name.removeprefix('torch_'):>9}" for name in others)
    for result in results.values():
        for e in result["cases"]:
            if not e["selected"]:
                continue
            lines.append(
                f"{e['op']:22}{e['case'][:33]:34}{e['dtype']:11}{e['row'] + ' +pdl' * e['pdl']:34}{e['us']:9.2f}"
                f"{e['tb_s']:7.3g}{e['of_ceiling']:8.1%}{e['tflop_s']:8.1f}"
                + "".join(f"{e['baselines'].get(name, 0):9.1f}" for name in others)
            )
        lines += [f"host: {h['op']} from {h['language']}: {h['ns']} ns beyond a bare launch" for h in result["host"]]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", action="append", help="only this family (again for more)")
    parser.add_argument("--filter", action="append", metavar="WORDS", help="only cases that contain this (again: and)")
    parser.add_argument(
        "--rows", action="append", metavar="WORDS", help="only rows whose name contains this (again: or)"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="5 rounds, no torch.compile")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--compile-seconds", type=float, default=120, help="stop compiling baselines after this long")
    parser.add_argument("--out", type=Path, help="write the results into this folder")
    run = Run(parser.parse_args())
    results = run.all()
    print(table(results))
    print(f"{sum(len(r['cases']) for r in results.values())} timings in {time.monotonic() - run.start:.0f} s")
    if run.wrong:
        sys.exit("wrong results:\n  " + "\n  ".join(run.wrong))


if __name__ == "__main__":
    main()
