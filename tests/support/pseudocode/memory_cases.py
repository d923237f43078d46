"""Cases of loads, stores and atomics: programs that fill memory, run one instruction, and read memory back.

Each lane has some bytes of its own. s[16:17] point at the buffer, v16 is the lane's distance, v17 the same
and 16 more; v[20:27] fill the lane's 32 bytes. Data of the instruction under test are in v[0:3], its result
in v[4:7], memory afterwards in v[8:15].
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from pseudocode import patterns
from pseudocode.drafts import Draft, State, scalar_name, vector_name
from pseudocode.floats import BY_TYPE
from pseudocode.published import load_pseudocode
from pseudocode.wave import LANES

LEFT_OUT = re.compile(
    r"DS_GWS_\w+|DS_\w*GS_REG\w*|DS_(CONSUME|APPEND|NOP|BVH_STACK\w+|SWIZZLE_B32|B?PERMUTE(_FI)?_B32)"
    r"|DS_(ORDERED_COUNT|CONDXCHG32_RTN_B64)|\w+_ADDTID_B32|GLOBAL_ATOMIC_CSUB_U32|\w+_BLOCK|GLOBAL_ATOMIC_ORDERED_ADD_B64"
)
SIZES = {"8": 1, "16": 2, "32": 4, "64": 8, "96": 12, "128": 16}
ROOM = 32  # bytes of each lane


@dataclass(frozen=True)
class _Words:
    """What an architecture calls what these programs need besides."""

    scalar_loads: str  # waits for them
    lds: str
    accesses: tuple[str, ...]  # waits for loads and stores of vectors
    returning: str  # that an atomic gives what was there
    forget: tuple[str, ...]  # what scalar loads read before, once stores of vectors are done
    spaces: tuple[str, str, str]  # encodings


_WORDS = {
    "rdna3": _Words(
        scalar_loads="s_waitcnt lgkmcnt(0)",
        lds="s_waitcnt lgkmcnt(0)",
        accesses=("s_waitcnt_vscnt null, 0x0", "s_waitcnt vmcnt(0) lgkmcnt(0)"),
        returning="glc",
        forget=("s_gl1_inv", "s_dcache_inv", "s_wait_idle"),
        spaces=("GLOBALOp", "FLATOp", "SCRATCHOp"),
    ),
    "rdna4": _Words(
        scalar_loads="s_wait_kmcnt 0x0",
        lds="s_wait_dscnt 0x0",
        accesses=("s_wait_storecnt 0x0", "s_wait_loadcnt_dscnt 0x0"),
        returning="th:TH_ATOMIC_RETURN",
        forget=("s_dcache_inv", "s_wait_idle"),
        spaces=("VGLOBALOp", "VFLATOp", "VSCRATCHOp"),
    ),
}
_POINT = "s_load_b64 s[16:17], s[80:81], null"
_ADDRESS = (
    "v_add_co_u32 v18, s20, s16, v{base}",
    "v_add_co_ci_u32_e64 v19, s20, s17, 0, s20",
)


def _names(architecture: str, encoding: str, *, atomic: bool) -> list[str]:
    names = load_pseudocode(architecture)[encoding]
    return sorted(name for name in names if not LEFT_OUT.fullmatch(name) and _is_atomic(name) == atomic)


def _is_atomic(name: str) -> bool:
    return "ATOMIC" in name or (name.startswith("DS_") and not re.search("_(LOAD|STORE)_", name))


def _size(name: str) -> int:
    if "_pk_" in name:
        return 4
    match = re.search(r"(\d+)$", name)
    assert match is not None
    return SIZES[match[1]]


def draft_accesses(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for encoding in _WORDS[architecture].spaces:
        for name in _names(architecture, encoding, atomic=False):
            if "FLAT" in encoding and not name.startswith("FLAT"):
                continue
            for _ in range(count):
                yield _access(Random(random.getrandbits(64)), name.lower(), _WORDS[architecture])


def draft_atomics(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for encoding in _WORDS[architecture].spaces[:2]:
        for name in _names(architecture, encoding, atomic=True):
            for _ in range(count):
                yield _atomic(Random(random.getrandbits(64)), name.lower(), _WORDS[architecture])


def draft_lds(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for name in _names(architecture, "DSOp", atomic=False):
        for _ in range(count):
            make = _two_addresses if "2ADDR" in name else _lds_access
            yield make(Random(random.getrandbits(64)), name.lower(), _WORDS[architecture])


def draft_lds_atomics(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for name in _names(architecture, "DSOp", atomic=True):
        for _ in range(count):
            make = _two_addresses if "2ADDR" in name else _lds_atomic
            yield make(Random(random.getrandbits(64)), name.lower(), _WORDS[architecture])


def draft_scalar_loads(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for count_registers in (1, 2, 4, 8, 16):
        for _ in range(count):
            yield _scalar_load(Random(random.getrandbits(64)), count_registers, _WORDS[architecture])


def _state(random: Random, kind: str = "b32", *, stride: int = ROOM) -> State:
    state = State()
    state.v[16] = [lane * stride for lane in range(LANES)]
    state.v[17] = [lane * stride + 16 for lane in range(LANES)]
    for first, count in ((0, 8), (20, 8)):
        if kind in BY_TYPE:  # what atomics do with NaN, denormals and zeros of both signs is not said
            _fill_plain(random, state, first, count, kind)
        else:
            state.fill_vector(random, first, "b32", count)
    return state


def _fill_plain(random: Random, state: State, first: int, count: int, kind: str) -> None:
    form = BY_TYPE[kind]
    step = max(1, form.width // 32)
    for number in range(first, first + count, step):
        values = [
            sum(patterns.plain_float(random, form) << at for at in range(0, 32 * step, form.width))
            for _ in range(LANES)
        ]
        for place in range(step):
            state.v[number + place] = [bits >> 32 * place & 0xFFFFFFFF for bits in values]


def _masked(random: Random, line: str) -> tuple[str, ...]:
    """Sometimes only some lanes run the instruction."""
    if random.random() < 0.7:
        return (line,)
    mask = random.choice((random.getrandbits(LANES), 1 << random.randrange(LANES), 0xFFFF))
    return (f"s_mov_b32 exec_lo, {mask:#x}", line, "s_mov_b32 exec_lo, -1")


def _program(
    name: str, before: tuple[str, ...], tested: tuple[str, ...], after: tuple[str, ...], **fill: object
) -> Draft:
    def filled(values: Random) -> State:
        make = fill["make"]
        assert callable(make)
        return make(values)

    place = len(before) + (1 if len(tested) > 1 else 0)
    return Draft(name, (*before, *tested, *after), filled, tested=place, judged=False)


def _access(random: Random, name: str, known: _Words) -> Draft:
    size = _size(name)
    aligned = min(size, 4)
    offset = random.randrange(0, ROOM - size + 1, aligned)
    is_load = "_load_" in name
    data = vector_name(4 if is_load else 0, max(1, size // 4))
    if name.startswith("scratch"):
        return _scratch_access(random, name, data, offset, known, is_load=is_load)
    base = 16
    if name.startswith("global") and random.random() < 0.4:
        base, offset = 17, offset - 16
    suffix = f" offset:{offset}" if offset else ""
    uses_pair = name.startswith("flat") or random.random() < 0.5
    address = "v[18:19]" if uses_pair else vector_name(base)
    scalar = "" if name.startswith("flat") else ", off" if uses_pair else ", s[16:17]"
    words = f"{data}, {address}{scalar}" if is_load else f"{address}, {data}{scalar}"
    prepare = tuple(line.format(base=base) for line in _ADDRESS)
    return _program(
        name,
        (*_point(known), *_global_fill(known), *prepare),
        _masked(random, f"{name} {words}{suffix}"),
        (*known.accesses, *_global_read(known)),
        make=_state,
    )


def _point(known: _Words) -> tuple[str, ...]:
    return (_POINT, known.scalar_loads)


def _global_fill(known: _Words) -> tuple[str, ...]:
    return (
        "global_store_b128 v16, v[20:23], s[16:17]",
        "global_store_b128 v16, v[24:27], s[16:17] offset:16",
        *known.accesses,
    )


def _global_read(known: _Words) -> tuple[str, ...]:
    return (
        "global_load_b128 v[8:11], v16, s[16:17]",
        "global_load_b128 v[12:15], v16, s[16:17] offset:16",
        *known.accesses,
    )


def _scratch_access(
    random: Random, name: str, data: str, offset: int, known: _Words, *, is_load: bool
) -> Draft:
    """The address is a vector register, a scalar register, both or none, and the offset."""
    first, second = random.getrandbits(1), random.getrandbits(1)
    apart = 4 * random.randrange(4)
    vector, scalar = "v28" if first else "off", "s18" if second else "off"
    words = f"{data}, {vector}, {scalar}" if is_load else f"{vector}, {data}, {scalar}"
    line = f"{name} {words} offset:{offset}"
    base = 64 + (apart if first else 0) + (128 if second else 0)

    def make(values: Random) -> State:
        state = _state(values)
        state.v[28] = [64 + apart] * LANES
        state.s[18] = 128 + (0 if first else 64)
        return state

    if not (first or second):
        base = 0
    elif not first:
        base = 128 + 64
    fill = tuple(f"scratch_store_b128 off, v[{20 + n}:{23 + n}], off offset:{base + 4 * n}" for n in (0, 4))
    read = tuple(f"scratch_load_b128 v[{8 + n}:{11 + n}], off, off offset:{base + 4 * n}" for n in (0, 4))
    return _program(
        name,
        (*fill, *known.accesses),
        _masked(random, line),
        (*known.accesses, *read, *known.accesses),
        make=make,
    )


def _atomic(random: Random, name: str, known: _Words) -> Draft:
    size = _size(name)
    offset = random.randrange(0, ROOM - 2 * size + 1, size)
    returns = random.random() < 0.6
    shared = not returns and random.random() < 0.5 and not re.search("swap|f\\d", name)
    count = size // 4 * (2 if "cmpswap" in name else 1)
    data, result = vector_name(0, count), vector_name(4, size // 4)
    is_flat = name.startswith("flat")
    uses_pair = is_flat or random.random() < 0.5
    address = "v[18:19]" if uses_pair else "v16"
    scalar = "" if is_flat else ", off" if uses_pair else ", s[16:17]"
    words = f"{result}, {address}, {data}{scalar}" if returns else f"{address}, {data}{scalar}"
    line = f"{name} {words} offset:{offset}{f' {known.returning}' if returns else ''}"
    share = ("v_mov_b32 v16, 0",) if shared else ()
    prepare = tuple(part.format(base=16) for part in _ADDRESS)
    return _program(
        name,
        (*_point(known), *_global_fill(known), *share, *prepare),
        _masked(random, line),
        (*known.accesses, *_global_read(known)),
        make=_atomic_state(name, offset, size, shared=shared),
    )


def _atomic_state(name: str, offset: int, size: int, *, shared: bool):
    kind = name.rsplit("_", 1)[1]

    def make(values: Random) -> State:
        state = _state(values, kind)
        words = size // 4
        for lane in range(LANES):
            if re.search("cmp(swap|store)", name) and values.random() < 0.6:  # what is compared is equal
                compared = words  # both hold the new value first, then what is compared
                for place in range(words):
                    state.v[compared + place][lane] = state.v[20 + offset // 4 + place][lane]
        if shared and re.search("inc|dec", name):  # the order of lanes must not matter
            for place in range(words):
                state.v[place] = [state.v[place][0]] * LANES
        return state

    return make


def _lds_access(random: Random, name: str, known: _Words) -> Draft:
    size = _size(name.removesuffix("_d16").removesuffix("_d16_hi"))
    offset = random.randrange(0, ROOM - size + 1, min(size, 4))
    is_load = "_load_" in name
    data = vector_name(4 if is_load else 0, max(1, size // 4))
    words = f"{data}, v16" if is_load else f"v16, {data}"
    return _program(
        name,
        _lds_fill(known),
        _masked(random, f"{name} {words} offset:{offset}"),
        _lds_read(known),
        make=_state,
    )


def _lds_fill(known: _Words) -> tuple[str, ...]:
    return ("ds_store_b128 v16, v[20:23]", "ds_store_b128 v16, v[24:27] offset:16", known.lds)


def _lds_read(known: _Words) -> tuple[str, ...]:
    return (
        known.lds,
        "ds_load_b128 v[8:11], v16",
        "ds_load_b128 v[12:15], v16 offset:16",
        known.lds,
    )


def _lds_atomic(random: Random, name: str, known: _Words) -> Draft:
    size = _size(name)
    returns = "_rtn_" in name
    offset = random.randrange(0, ROOM - size + 1, size)
    shared = (
        not returns and random.random() < 0.5 and not re.search("cmpstore|xchg|mskor|wrap|rsub|_b?f\\d", name)
    )
    words = size // 4
    data = [vector_name(0, words)]
    if re.search("cmpstore|mskor|wrap", name):
        data.append(vector_name(words, words))
    result = [vector_name(4, words)] if returns else []
    share = ("v_mov_b32 v16, 0",) if shared else ()
    line = f"{name} {', '.join([*result, 'v16', *data])} offset:{offset}"
    return _program(
        name,
        (*_lds_fill(known), *share),
        _masked(random, line),
        _lds_read(known),
        make=_atomic_state(name, offset, size, shared=shared),
    )


def _two_addresses(random: Random, name: str, known: _Words) -> Draft:
    """Lanes are 8 or 16 bytes apart so that what two offsets reach does not overlap."""
    size = _size(name)
    words = size // 4
    unit = size * (64 if "stride64" in name else 1)
    offsets = random.sample(range(1 if "stride64" in name else 0, 100 if "stride64" in name else 2), 2)
    stride = size if "stride64" in name else 2 * size
    data = [vector_name(0, words), vector_name(words, words)]
    result = vector_name(4, 2 * words)
    operands = {"load": [result, "v16"], "store": ["v16", *data]}.get(
        name.split("_")[1], [result, "v16", *data]
    )
    line = f"{name} {', '.join(operands)} offset0:{offsets[0]} offset1:{offsets[1]}"
    places = [unit * offset for offset in offsets]
    fill = tuple(
        f"ds_store_b{8 * size} v16, {vector_name(20 + 2 * n, words)} offset:{place}"
        for n, place in enumerate(places)
    )
    read = tuple(
        f"ds_load_b{8 * size} {vector_name(8 + 2 * n, words)}, v16 offset:{place}"
        for n, place in enumerate(places)
    )
    return _program(
        name,
        (*fill, known.lds),
        _masked(random, line),
        (known.lds, *read, known.lds),
        make=lambda values: _state(values, stride=stride),
    )


def _scalar_load(random: Random, count: int, known: _Words) -> Draft:
    target = scalar_name(0 if count == 16 else 4 * random.randrange((16 - count) // 4 + 1), count)
    distance = 4 * random.randrange((LANES * ROOM - 4 * count) // 4)
    form = random.choice(("fixed", "register", "both"))
    offset = {"fixed": hex(distance), "register": "s18", "both": "s18 offset:0x40"}[form]

    def make(values: Random) -> State:
        state = _state(values)
        state.s[18] = distance if form == "register" else max(0, distance - 0x40)
        return state

    name = f"s_load_b{32 * count}"
    line = f"{name} {target}, s[16:17], {offset}"
    return _program(
        name, (*_point(known), *_global_fill(known), *known.forget), (line,), (known.scalar_loads,), make=make
    )
