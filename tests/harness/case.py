# SPDX-License-Identifier: Apache-2.0
"""One call of one op, written so that a line of text says all of it:  T=bf16 lead=3,5 dim=129 with=weight seed=7"""

from dataclasses import dataclass, fields

from einkorn.schema import OPS


@dataclass(frozen=True)
class Case:
    op: str
    dtypes: tuple = ()  # (variable, dtype)
    lead: tuple = ()  # sizes for "..."
    dims: tuple = ()  # (free dim, size)
    attrs: tuple = ()  # (attr, value) that are not the default
    present: tuple = ()  # optional tensors that are given
    alias: tuple = ()  # (output, input) in the same memory
    # random: any order of dims, with gaps; aligned: with gaps of whole vectors; broadcast: a leading dim of an input has
    # stride 0; columns:a,b: matrices by rows, but a and b by columns, with a gap after each; columns:a,b:b the same, with
    # one b for the whole batch
    strides: str = "dense"
    shift: int = 0  # bytes past a 256-byte boundary where every tensor starts, rounded up to whole elements
    moved: str = ""  # the one tensor that is shifted, where it is not all of them
    # special: NaN, infinities, zeros, denormals, large values in rows of their own; finite: the last three of these
    fill: str = "normal"
    # of attention. any: drawn; full: every sequence has as much as it can; one: one of them has all there is
    lengths: str = "any"
    seed: int = 0

    def __str__(self):
        words = [f"{k}={v}" for k, v in self.dtypes]
        if OPS[self.op].has_lead:
            words.append(f"lead={','.join(map(str, self.lead))}")
        words += [f"{k}={v}" for k, v in (*self.dims, *self.attrs)]
        if self.present:
            words.append(f"with={','.join(self.present)}")
        if self.alias:
            words.append("alias=" + ",".join(f"{o}:{i}" for o, i in self.alias))
        for f in fields(self):
            if (
                f.name in ("strides", "shift", "moved", "fill", "lengths", "seed")
                and getattr(self, f.name) != f.default
            ):
                words.append(f"{f.name}={getattr(self, f.name)}")
        return " ".join(words)

    @classmethod
    def parse(cls, op, text):
        schema = OPS[op]
        attrs = {a.name: a for a in schema.attrs}
        found = {"dtypes": [], "dims": [], "attrs": []}
        for word in text.split():
            key, _, value = word.partition("=")
            if key in schema.dtypes:
                found["dtypes"].append((key, value))
            elif key in schema.free_dims:
                found["dims"].append((key, int(value)))
            elif key in attrs:
                found["attrs"].append((key, _attr_value(attrs[key], value)))
            elif key == "lead":
                found["lead"] = tuple(int(v) for v in value.split(",") if v)
            elif key == "with":
                found["present"] = tuple(value.split(","))
            elif key == "alias":
                found["alias"] = tuple(tuple(pair.split(":")) for pair in value.split(","))
            elif key in ("shift", "seed"):
                found[key] = int(value)
            elif key in ("strides", "moved", "fill", "lengths"):
                found[key] = value
            else:
                raise ValueError(f"{op} has no {key!r} (in the case {text!r})")
        return cls(op, **{k: tuple(v) if isinstance(v, list) else v for k, v in found.items()})


def _attr_value(attr, text):
    if attr.type == "enum":
        return text
    if attr.type == "bool":
        return text == "True"
    return float(text) if attr.type[0] == "f" else int(text)
