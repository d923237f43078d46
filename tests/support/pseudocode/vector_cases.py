"""Cases of vector instructions whose lanes do not see each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from pseudocode import floats, patterns
from pseudocode.drafts import (
    FLUSHING_MODE,
    Draft,
    State,
    constant,
    random_exec,
    random_scalar,
    random_vector,
    scalar_name,
    vector_name,
)
from pseudocode.evaluate import type_of
from pseudocode.floats import BY_TYPE, F16
from pseudocode.published import load_pseudocode
from pseudocode.wave import LANES, Text, find_text, read_operand

# What the guides leave open, or what other families test.
LEFT_OUT = {
    r"V_CVT_PK_U8_F32|V_CVT_PK_[IU]16_F32|V_CVT_(PK_)?NORM_\w+": "how they round is not said",
    r"V_CVT_NEAREST_I32_F32": "whether x + 0.5 is rounded is not said",
    r"V_DOT2_BF16_BF16": "what becomes of bf16 denormals is not said",
    r"V_(READ|WRITE)LANE_B32|V_READFIRSTLANE_B32|V_PERMLANE\w+|V_MOVREL\w+": "family lanes",
    r"V_CVT_(PK_)?F32_(FP8|BF8)|V_CVT_(PK|SR)_(FP8|BF8)_F32": "by hand: their text picks bytes",
    r"V_SWAPREL_B32|V_PIPEFLUSH|V_NOP|V_INTERP\w+": "not compiled for compute kernels",
}
CLAMPED_WHOLE = re.compile(
    r"V_(PK_)?(ADD|SUB)(_NC)?_[UI](16|32)|V_(PK_)?MAD_[UI]16|V_(ADD|SUB|SUBREV)_CO_(CI_)?U32"
)
CLAMPED_DOT = re.compile(r"V_DOT[48]_I32_IU[48]")
FLUSHED = re.compile(r"V_(ADD|SUB|SUBREV|MUL|FMA|FMAC|FMAAK|FMAMK|MIN|MAX|CMPX?_N?[A-Z]{1,2})_F32")


@dataclass(frozen=True)
class Source:
    """An operand as it is written, and what must be in its register."""

    text: str
    kind: str
    count: int  # registers


def names_of(architecture: str, *encodings: str) -> list[str]:
    """Names without encoding, sorted."""
    published = load_pseudocode(architecture)
    found = {re.sub(r"_E(32|64)$", "", name) for encoding in encodings for name in published[encoding]}
    return sorted(name for name in found if not any(re.fullmatch(pattern, name) for pattern in LEFT_OUT))


def pure_vop3_names(architecture: str) -> list[str]:
    return [
        name
        for name in names_of(architecture, "VOP3Op")
        if name in load_pseudocode(architecture)["VOP3Op"] and not name.startswith("V_CMP")
    ]


def draft_one_operand(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for name in names_of(architecture, "VOP1Op"):
        yield from _drafts(random, name, count, architecture)


def draft_two_operands(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for name in names_of(architecture, "VOP2Op"):
        if not re.search(r"_CO_|DOT2|PK_FMAC", name):
            yield from _drafts(random, name, count, architecture)


def draft_three_operands(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for name in pure_vop3_names(architecture):
        if "DOT2" not in name:
            yield from _drafts(random, name, count, architecture)


def draft_carries(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for name in names_of(architecture, "VOP3SDOp"):
        yield from _drafts(random, name, count, architecture)


def draft_comparisons(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for name in names_of(architecture, "VOPCOp"):
        if name.startswith("V_CMP_"):
            yield from _drafts(random, name, count, architecture)


def draft_comparisons_to_exec(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for name in names_of(architecture, "VOPCOp"):
        if name.startswith("V_CMPX"):
            yield from _drafts(random, name, count, architecture)


def draft_packed(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for name in [*names_of(architecture, "VOP3POp"), "V_PK_FMAC_F16"]:
        if name.startswith("V_PK_"):
            yield from _drafts(random, name, count, architecture)


def draft_dots(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for name in [*names_of(architecture, "VOP3POp"), "V_DOT2_F16_F16", "V_DOT2ACC_F32_F16"]:
        if name.startswith("V_DOT"):
            yield from _drafts(random, name, count, architecture)


def draft_mixed(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for name in names_of(architecture, "VOP3POp"):
        if "FMA_MIX" in name:
            yield from _drafts(random, name, count, architecture)


def _drafts(random: Random, name: str, count: int, architecture: str) -> Iterator[Draft]:
    text = find_text(name.lower(), architecture)
    for _ in range(count):
        yield _draft(Random(random.getrandbits(64)), text)


def _draft(random: Random, text: Text) -> Draft:
    name = text.name
    is_packed = text.encoding == "VOP3POp"
    sources = _sources(random, text)
    target = _target(random, text)
    words = [source.text for source in sources]
    modifiers = _packed_modifiers(random, text, words) if is_packed else _modifiers(random, text, words)
    has_modifiers = bool(modifiers) or any(re.search(r"\||-[vs]", word) for word in words)
    carries = [scalar_name(random_scalar(random))] if re.search(r"_CO_|DIV_SCALE|MAD_[UI]64", name) else []
    carry_in = (
        [random.choice(("vcc_lo", scalar_name(random_scalar(random))))]
        if re.search("_CO_CI|CNDMASK", name)
        else []
    )
    if "SIMM32" in text.names:
        literal = constant(random, text.result, literal=True)
        assert literal is not None
        words.insert(1 if "MK" in name else 2, literal)
    suffix = ""
    if text.encoding in {"VOP1Op", "VOP2Op", "VOPCOp"} and "SIMM32" not in text.names:
        suffix = "_e64" if has_modifiers or random.random() < 0.4 else ""
    if re.search("V_SWAP|DOT2ACC|V_PK_FMAC", name):
        suffix = ""
    operands = ", ".join([*([target.text] if target else []), *carries, *words, *carry_in])
    line = f"{name.lower()}{suffix} {operands}{modifiers}"
    held = [*sources, *([target] if target else [])]

    def fill(values: Random) -> State:
        return _filled(values, text, sources, held, line)

    return Draft(name.lower(), (line,), fill)


def source_count(text: Text) -> int:
    if "FMA_MIX" in text.name:
        return 3
    return max((number + 1 for number in range(3) if f"S{number}" in text.names), default=0)


def _sources(random: Random, text: Text) -> list[Source]:
    kinds = _kinds(text)
    if text.encoding == "VOP2Op":
        kinds = kinds[:2]
    found = [_source(random, text, kind, width) for kind, width in kinds]
    if "DIV_SCALE" in text.name:  # the numerator or the denominator
        found[0] = found[random.randrange(1, 3)]
    return found


def _kinds(text: Text) -> list[tuple[str, int]]:
    if "FMA_MIX" in text.name:
        return [("f32", 32)] * 3
    return list(text.sources[: source_count(text)])


def _source(random: Random, text: Text, kind: str, width: int) -> Source:
    count = max(1, width // 32)
    if text.name.startswith("V_S_"):
        return Source(scalar_name(random_scalar(random)), kind, count)
    choice = random.random() * (
        0.7 if "FMA" in text.name else 1
    )  # sums are made to meet, which needs registers
    # Sums of differences take bytes of a constant's upper half, and how that is filled is not said.
    if choice < 0.65 or text.name.startswith("V_SWAP") or ("QSAD" in text.name and choice >= 0.82):
        half = None
        if (
            count == 1
            and (type_of(kind)[1] == 16 or re.search("16|ALIGN", text.name))
            and not _is_whole(text)
        ):
            half = random.choice((0, 1, 0, 1, None))
        return Source(vector_name(random_vector(random, count), count, half), kind, count)
    if choice < 0.82:
        return Source(scalar_name(random_scalar(random, count), count), kind, count)
    if kind in {"u16", "i16", "b16"} and choice < 0.92:
        return Source(str(random.randrange(-16, 65)), kind, count)
    if "DOT2" in text.name:  # others would be denormal
        return Source(
            random.choice(("0", "1.0", "-4.0")) if text.name == "V_DOT2_F32_F16" else "0", kind, count
        )
    made = constant(random, _constant_kind(text, kind), literal=choice > 0.92)
    return Source(made or "0", kind, count)


def _constant_kind(text: Text, kind: str) -> str:
    return "b32" if text.encoding == "VOP3POp" and kind in {"u16", "i16"} else kind


def _is_whole(text: Text) -> bool:
    """All 32 bits of each source count."""
    return text.encoding == "VOP3POp" or text.name.startswith("V_PK_")


def _target(random: Random, text: Text) -> Source | None:
    name = text.name
    if name.startswith("V_CMPX"):
        return None
    if name.startswith("V_CMP"):
        return Source(random.choice(("vcc_lo", scalar_name(random_scalar(random)))), "b32", 1)
    if name.startswith("V_S_"):
        return Source(scalar_name(random_scalar(random)), text.result, 1)
    width = type_of(text.result)[1] if text.result else 32
    count = max(1, width // 32)
    half = random.choice((0, 1)) if width == 16 and not _is_whole(text) and random.random() < 0.9 else None
    kind = text.result or "b32"
    return Source(
        vector_name(random_vector(random, count), count, half), kind if "F" in name else "b32", count
    )


def _modifiers(random: Random, text: Text, words: list[str]) -> str:
    """Changes sources to have their sign changed, and gives what follows them."""
    if text.name.startswith("V_S_"):
        return ""
    if text.name == "V_DOT2_F16_F16":
        return ""  # which halves they change is not said
    signs = random.random() < 0.4
    for number, word in enumerate(words):
        if not signs or text.sources[number][0] not in BY_TYPE or not re.match(r"[vs]", word):
            continue
        changed = f"|{word}|" if random.random() < 0.4 else word
        words[number] = "-" + changed if random.random() < 0.5 else changed
    found = ""
    upper = [int(bool(re.search(r"\.h\|?$", word))) for word in words]
    is_narrow = text.result == "f16" and all(kind == "f16" for kind, _ in text.sources[: len(words)])
    if is_narrow and random.random() < 0.2 and any(re.match(r"s\d", word) for word in words):
        bits = [1 if re.match(r"s\d", word) else bit for word, bit in zip(words, upper, strict=True)]
        found += f" op_sel:[{','.join(map(str, [*bits, 0]))}]"
    is_float = text.result in {"f16", "f32", "f64"} and not re.search("PACK|CVT_PK|CNDMASK|MOV", text.name)
    if random.random() < 0.15 and (is_float or CLAMPED_WHOLE.fullmatch(text.name)):
        found += " clamp"
    if random.random() < 0.05 and is_float:
        found += random.choice((" mul:2", " mul:4", " div:2"))
    return found


def _packed_modifiers(random: Random, text: Text, words: list[str]) -> str:
    name, count = text.name, len(words)

    def bits(likely: int, chance: float) -> str:
        return ",".join(str(int(not likely) if random.random() < chance else likely) for _ in range(count))

    if "FMA_MIX" in name:
        return _mixed_modifiers(random, words)
    found = ""
    if re.search(r"IU[48]$", name):
        found += f" neg_lo:[{random.getrandbits(1)},{random.getrandbits(1)},0]"
        return found + (" clamp" if random.random() < 0.2 else "")
    if not name.startswith(("V_PK_", "V_DOT2_F32")):
        return ""
    if random.random() < 0.5:
        found += f" op_sel:[{bits(0, 0.4)}]"
    if random.random() < 0.5:
        found += f" op_sel_hi:[{bits(1, 0.4)}]"
    if "F16" in name and random.random() < 0.4:
        high = bits(0, 0.4) if "DOT" not in name else f"{bits(0, 0.4)[:3]},0"  # of a 32-bit addend: not said
        found += f" neg_lo:[{bits(0, 0.4)}] neg_hi:[{high}]"
    if random.random() < 0.15 and (
        (name.endswith("F16") and "DOT" not in name) or CLAMPED_WHOLE.fullmatch(name)
    ):
        found += " clamp"
    return found


def _mixed_modifiers(random: Random, words: list[str]) -> str:
    halves = [random.getrandbits(1) if re.match("[vs]", word) else 0 for word in words]
    upper = [random.getrandbits(1) & half for half in halves]
    for number, word in enumerate(words):
        if re.match("[vs]", word) and random.random() < 0.3:
            words[number] = random.choice((f"-{word}", f"|{word}|", f"-|{word}|"))
    found = f" op_sel:[{','.join(map(str, upper))}] op_sel_hi:[{','.join(map(str, halves))}]"
    return found + (" clamp" if random.random() < 0.15 else "")


# Registers


def _filled(
    random: Random, text: Text, sources: Sequence[Source], held: Sequence[Source], line: str
) -> State:
    state = State(exec=random_exec(random))
    for source in held:
        operand = read_operand(source.text)
        if operand.kind == "v":
            state.fill_vector(random, operand.number, _filling(random, text, source.kind), source.count)
        elif operand.kind == "s" and operand.number < 16:
            state.fill_scalar(random, operand.number, _filling(random, text, source.kind), source.count)
    for word in re.findall(r"\bs\d+\b", line):
        state.fill_scalar(random, int(word[1:]), "b32")
    if re.search("vcc|div_fmas", line) or "VCC" in text.names:
        state.vcc = random.getrandbits(32)
    if FLUSHED.fullmatch(text.name) and random.random() < 0.35:
        state.mode = FLUSHING_MODE
        _bring_denormals(random, state, held)
    if text.name.startswith(("V_SIN", "V_COS")):
        _keep_within(random, state, text)
    if text.name.startswith("V_DOT2"):
        _make_plain(random, state, text, sources)
    if text.name == "V_DIV_FIXUP_F16":
        _make_plain(random, state, text, sources[:1])  # what becomes of a quotient that is NaN is not said
    _relate(random, state, text, sources, held)
    return state


def _filling(random: Random, text: Text, kind: str) -> str:
    if "FMA_MIX" in text.name:
        return random.choice(("f16", "f32"))
    return kind


def _bring_denormals(random: Random, state: State, held: Sequence[Source]) -> None:
    for source in held:
        operand = read_operand(source.text)
        for lane in range(LANES) if operand.kind == "v" and source.kind == "f32" else ():
            if random.random() < 0.4:
                bits = random.getrandbits(1) << 31 | random.getrandbits(random.randrange(1, 26))
                state.v[operand.number][lane] = bits


def _keep_within(random: Random, state: State, text: Text) -> None:
    """Sine and cosine are only defined up to 256 turns."""
    form = BY_TYPE[text.sources[0][0]]
    for lanes in state.v.values():
        for lane in range(LANES):
            bits = floats.from_float(random.uniform(-256, 256), form)
            lanes[lane] = bits | bits << 16 if form == F16 else bits
    for number in state.s:
        bits = floats.from_float(random.uniform(-256, 256), form)
        state.s[number] = bits | bits << 16 if form == F16 else bits


def _make_plain(random: Random, state: State, text: Text, sources: Sequence[Source]) -> None:
    """Sums of products are only compared where neither order nor denormals matter."""
    for source in sources:
        operand = read_operand(source.text)
        form = BY_TYPE.get(source.kind, F16)
        for lane in range(LANES) if operand.kind == "v" else range(1):
            bits = patterns.plain_float(random, form)
            if form.width == 16:
                bits |= patterns.plain_float(random, form) << 16
            if operand.kind == "v":
                state.v[operand.number][lane] = bits
            elif operand.kind == "s":
                state.s[operand.number] = bits
    if "ACC" in text.name:
        for number, lanes in state.v.items():
            if all(read_operand(source.text).number != number for source in sources):
                lanes[:] = [patterns.plain_float(random, BY_TYPE["f32"]) for _ in lanes]


def _relate(
    random: Random, state: State, text: Text, sources: Sequence[Source], held: Sequence[Source]
) -> None:
    """Makes operands meet: equal ones, sums that cancel, sums that fall between two numbers."""
    read = held if "FMAC" in text.name else sources  # one that accumulates reads its target
    vectors = [source for source in read if re.match(r"v[\d\[]", source.text)]
    kinds = {source.kind for source in vectors}
    if len(vectors) < 2 or len(kinds) != 1 or "DOT" in text.name:
        return
    kind = kinds.pop()
    is_sum = (
        re.search("FMA|FMAC", text.name) and len(vectors) >= 3 and kind in BY_TYPE and "MIX" not in text.name
    )
    for lane in range(LANES):
        if is_sum and random.random() < 0.5:
            _place_sum(random, state, text, vectors, kind, lane)
        elif random.random() < 0.15 and len(sources) > 1 and vectors[0].count == vectors[1].count:
            first, second = (read_operand(source.text) for source in vectors[:2])
            for place in range(vectors[0].count):
                bits = state.v[first.number + place][lane]
                if first.half is not None and second.half is not None and first.half != second.half:
                    bits = bits >> 16 | bits << 16 & 0xFFFF0000
                state.v[second.number + place][lane] = bits


def _place_sum(
    random: Random, state: State, text: Text, vectors: Sequence[Source], kind: str, lane: int
) -> None:
    form = BY_TYPE[kind]
    order = (0, 1, 2)
    if form == F16:
        values = patterns.rounded_twice(random)
    else:
        a, b = (_lane_value(state, vectors[number], lane) for number in order[:2])
        values = (a, b, patterns.near_cancelling(random, a, b, form))
    for number, bits in zip(order, values, strict=True):
        operand = read_operand(vectors[number].text)
        filled = bits | bits << 16 if form == F16 else bits
        for place in range(vectors[number].count):
            state.v[operand.number + place][lane] = filled >> 32 * place & 0xFFFFFFFF


def _lane_value(state: State, source: Source, lane: int) -> int:
    number = read_operand(source.text).number
    return sum(state.v[number + place][lane] << 32 * place for place in range(source.count))


# Two instructions in one

_DUAL_X = (
    "fmac_f32 fmaak_f32 fmamk_f32 mul_f32 add_f32 sub_f32 subrev_f32 mul_dx9_zero_f32 mov_b32 cndmask_b32"
)
_DUAL_X += " dot2acc_f32_f16"
_DUAL_EXTREMES = {"rdna3": ("max_f32", "min_f32"), "rdna4": ("max_num_f32", "min_num_f32")}
_DUAL_Y = "add_nc_u32 lshlrev_b32 and_b32"


def draft_dual(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    first = [*_DUAL_X.split(), *_DUAL_EXTREMES[architecture]]
    second = [*first, *_DUAL_Y.split()]
    for x in first:
        for y in second:
            for _ in range(max(1, count // 4)):
                yield _dual(Random(random.getrandbits(64)), x, y, architecture)


def _dual(random: Random, x: str, y: str, architecture: str) -> Draft:
    """Registers are taken from banks so that the two may run together: the assembler refuses the rest."""
    parts, texts, sources = [], [], []
    for number, name in enumerate((x, y)):
        text = find_text("v_" + name, architecture)
        target = random_vector(random) & ~1 | number
        words = []
        for place in range(1 if name == "mov_b32" else 2):
            bank = 2 * number + place
            register = random.randrange(4) * 4 + bank % 4
            is_scalar = place == 0 and random.random() < 0.2
            source = Source(
                f"s{random.randrange(2)}" if is_scalar else f"v{register}", text.sources[place][0], 1
            )
            sources.append(source)
            words.append(source.text)
        if "SIMM32" in text.names:
            words.insert(1 if "mk" in name else 2, "0x3f8ccccd")
        sources.append(Source(f"v{target}", text.result or "b32", 1))
        parts.append(f"v_dual_{name} v{target}, {', '.join(words)}")
        texts.append(text)

    def fill(values: Random) -> State:
        state = State(exec=random_exec(values), vcc=values.getrandbits(32))
        for source in sources:
            operand = read_operand(source.text)
            if operand.kind == "v":
                state.fill_vector(values, operand.number, source.kind)
            else:
                state.fill_scalar(values, operand.number, source.kind)
        for text, of in zip(texts, (sources[: len(sources) // 2], sources[len(sources) // 2 :]), strict=True):
            if "DOT2" in text.name:
                _make_plain(values, state, text, of)
        return state

    return Draft(f"{x} {y}", (" :: ".join(parts),), fill)
