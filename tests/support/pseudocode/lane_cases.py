"""Cases where lanes see each other: permutations, DPP, matrices; and whole divisions."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from pseudocode import floats, matrices, patterns
from pseudocode.drafts import ALL, COMPARED, Draft, State, random_exec, vector_name
from pseudocode.floats import F32, F64, Format
from pseudocode.matrices import Shape
from pseudocode.wave import LANES

_LDS_WAIT = {"rdna3": "s_waitcnt lgkmcnt(0)", "rdna4": "s_wait_dscnt 0x0"}


def draft_permutations(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    makers = {
        "v_readlane_b32": lambda r: f"s{r.randrange(16)}, v{r.randrange(16)}, {_selector(r)}",
        "v_readfirstlane_b32": lambda r: f"s{r.randrange(16)}, v{r.randrange(16)}",
        "v_writelane_b32": lambda r: f"v{r.randrange(16)}, s{r.randrange(16)}, {_selector(r)}",
        "v_permlane16_b32": lambda r: f"v{r.randrange(16)}, v{r.randrange(16)}, s3, s7",
        "v_permlanex16_b32": lambda r: f"v{r.randrange(16)}, v{r.randrange(16)}, s3, s7",
        "v_movreld_b32": lambda r: f"v{r.randrange(8)}, v{r.randrange(16)}",
        "v_movrels_b32": lambda r: f"v{r.randrange(16)}, v{r.randrange(8)}",
        "v_permlane16_var_b32": _three,  # this and others with _var and _fi: RDNA4
        "v_permlanex16_var_b32": _three,
        "ds_permute_b32": lambda r: _three(r) + _offset(r),
        "ds_bpermute_b32": lambda r: _three(r) + _offset(r),
        "ds_bpermute_fi_b32": lambda r: _three(r) + _offset(r),
        "ds_swizzle_b32": lambda r: f"v{r.randrange(16)}, v{r.randrange(16)} offset:{_swizzle(r)}",
    }
    for name, operands in makers.items():
        for _ in range(4 * count):
            own = Random(random.getrandbits(64))
            wait = (_LDS_WAIT[architecture],) if name.startswith("ds_") else ()
            yield Draft(name, (f"{name} {operands(own)}", *wait), _fill_of(name), judged=False)


def _three(random: Random) -> str:
    return ", ".join(f"v{random.randrange(16)}" for _ in range(3))


def _selector(random: Random) -> str:
    return random.choice((f"s{random.randrange(16)}", str(random.randrange(32))))


def _offset(random: Random) -> str:
    return f" offset:{random.choice((4, 8, 64, 128, 65532))}" if random.random() < 0.3 else ""


def _swizzle(random: Random) -> str:
    quad = random.getrandbits(8) | 0x8000
    return hex(random.choice((quad, random.getrandbits(15), 0x1F | random.getrandbits(5) << 10)))


def _fill_of(name: str):
    def fill(random: Random) -> State:
        state = State(exec=ALL if "permlane" in name else random_exec(random), m0=random.randrange(8))
        for number in range(COMPARED):
            state.fill_vector(random, number, "b32")
            state.fill_scalar(random, number, "b32")
        if "permute" in name:
            for lanes in state.v.values():
                lanes[:] = [random.choice((4 * random.randrange(32), bits)) for bits in lanes]
        return state

    return fill


def draft_dpp(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    instructions = (
        "v_mov_b32_dpp {d}, {a}",
        "v_add_f32_dpp {d}, {a}, {b}",
        "v_max_f32_dpp {d}, {a}, {b}",
        "v_add_nc_u32_dpp {d}, {a}, {b}",
        "v_and_b32_dpp {d}, {a}, {b}",
        "v_fmac_f32_dpp {d}, {a}, {b}",
    )
    for form in instructions:
        for _ in range(4 * count):
            own = Random(random.getrandbits(64))
            a, b, d = own.sample(range(COMPARED), 3)
            words = form.format(d=f"v{d}", a=f"v{a}", b=f"v{b}")
            yield Draft(form.split("_dpp")[0], (f"{words} {_dpp(own)}",), _dpp_fill(a, b, d))


def _dpp(random: Random) -> str:
    if random.random() < 0.2:
        lanes = ",".join(str(random.randrange(8)) for _ in range(8))
        return f"dpp8:[{lanes}] fi:1"  # without fi, what an inactive lane gives is not said
    by = random.randrange(1, 16)
    quad = ",".join(str(random.randrange(4)) for _ in range(4))
    control = random.choice(
        (
            f"quad_perm:[{quad}]",
            f"row_shl:{by}",
            f"row_shr:{by}",
            f"row_ror:{by}",
            "row_mirror",
            "row_half_mirror",
            f"row_share:{by}",
            f"row_xmask:{by}",
        )
    )
    rows, banks = (random.choice((15, 15, random.randrange(16))) for _ in range(2))
    ends = random.choice(("", " bound_ctrl:1")) + random.choice(("", "", " fi:1"))
    return f"{control} row_mask:{rows:#x} bank_mask:{banks:#x}{ends}"


def _dpp_fill(*registers: int):
    def fill(random: Random) -> State:
        state = State(exec=random_exec(random))
        for number in registers:
            state.fill_vector(random, number, "f32")
        return state

    return fill


# Matrices

A, B = 16, 32  # their first registers


def draft_matrices(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for name, shape in matrices.SHAPES[architecture].items():
        for number in range(2 * count):
            own = Random(random.getrandbits(64))
            first, second = vector_name(0, shape.sums), vector_name(8, shape.sums)
            addend = own.choice((first, second, "0"))
            operands = [vector_name(A, shape.registers), vector_name(B, shape.registers), addend]
            line = f"{name} {first}, {', '.join(operands)}{_matrix_modifiers(own, name, shape)}"
            yield Draft(name, (line,), _matrix_fill(shape, exact=number % 2 == 0), judged=False)


def _matrix_modifiers(random: Random, name: str, shape: Shape) -> str:
    if "_i32_" in name:
        signs = f" neg_lo:[{random.getrandbits(1)},{random.getrandbits(1)},0]"
        return signs + random.choice(("", "", " clamp"))
    found = " op_sel:[0,0,1]" if "wmma_f16" in name and not shape.is_split and random.random() < 0.5 else ""
    if random.random() < 0.3:
        bits = [random.getrandbits(1) for _ in range(6)]
        if isinstance(shape.a, Format) and shape.a.width == 8:
            bits[0] = bits[1] = bits[3] = bits[4] = 0  # only the addend has signs that change
        found += f" neg_lo:[{bits[0]},{bits[1]},{bits[2]}] neg_hi:[{bits[3]},{bits[4]},{bits[5]}]"
    return found


def _matrix_fill(shape: Shape, *, exact: bool):
    """Small whole numbers, whose sums are exact in any order, or numbers of ordinary size."""

    def number(random: Random, form: Format) -> int:
        if exact:
            return floats.from_float(float(random.randrange(-6, 7)), form)
        return patterns.plain_float(random, form)

    def word(random: Random, form: Format | int) -> int:
        if isinstance(form, int):
            return random.getrandbits(32)
        return sum(number(random, form) << at for at in range(0, 32, form.width))

    def fill(random: Random) -> State:
        state = State()
        for first, form in ((A, shape.a), (B, shape.b)):
            for register in range(first, first + shape.registers):
                lanes = [word(random, form) for _ in range(LANES)]
                state.v[register] = lanes if shape.is_split else lanes[:16] * 2
        for register in range(COMPARED):
            state.v[register] = [word(random, shape.sum or 32) for _ in range(LANES)]
        return state

    return fill


# Divisions, as LLVM expands them where the result must be that of IEEE 754

DIVISION_F32 = (
    "v_div_scale_f32 v20, null, v1, v1, v0",
    "v_div_scale_f32 v21, vcc_lo, v0, v1, v0",
    "v_rcp_f32 v22, v20",
    "v_fma_f32 v23, -v20, v22, 1.0",
    "v_fmac_f32 v22, v23, v22",
    "v_mul_f32 v24, v21, v22",
    "v_fma_f32 v25, -v20, v24, v21",
    "v_fmac_f32 v24, v25, v22",
    "v_fma_f32 v25, -v20, v24, v21",
    "v_div_fmas_f32 v25, v25, v22, v24",
    "v_div_fixup_f32 v2, v25, v1, v0",
)
DIVISION_F64 = (
    "v_div_scale_f64 v[20:21], null, v[2:3], v[2:3], v[0:1]",
    "v_rcp_f64 v[22:23], v[20:21]",
    "v_fma_f64 v[24:25], -v[20:21], v[22:23], 1.0",
    "v_fma_f64 v[22:23], v[22:23], v[24:25], v[22:23]",
    "v_fma_f64 v[24:25], -v[20:21], v[22:23], 1.0",
    "v_fma_f64 v[22:23], v[22:23], v[24:25], v[22:23]",
    "v_div_scale_f64 v[24:25], vcc_lo, v[0:1], v[2:3], v[0:1]",
    "v_mul_f64 v[26:27], v[24:25], v[22:23]",
    "v_fma_f64 v[20:21], -v[20:21], v[26:27], v[24:25]",
    "v_div_fmas_f64 v[20:21], v[20:21], v[22:23], v[26:27]",
    "v_div_fixup_f64 v[4:5], v[20:21], v[2:3], v[0:1]",
)


def draft_divisions(random: Random, count: int, architecture: str) -> Iterator[Draft]:
    for _ in range(10 * count):
        yield Draft("f32", DIVISION_F32, _division_fill(F32), tested=len(DIVISION_F32) - 1)
        yield Draft("f64", DIVISION_F64, _division_fill(F64), tested=len(DIVISION_F64) - 1)


def _division_fill(form: Format):
    words = form.width // 32

    def fill(random: Random) -> State:
        state = State()
        for number in range(2 * words):
            state.v[number] = [0] * LANES
        for lane in range(LANES):
            pair = [_dividend(random, form) for _ in range(2)]
            if random.random() < 0.05:
                pair[1] = pair[0]
            for operand, bits in enumerate(pair):
                for place in range(words):
                    state.v[operand * words + place][lane] = bits >> 32 * place & 0xFFFFFFFF
        return state

    return fill


def _dividend(random: Random, form: Format) -> int:
    if random.random() < 0.2:
        return patterns.float_bits(random, form)
    edges = (0, 1, 2, 23, 24, form.bias, form.top - 1, form.top - 2, form.top - 3)
    exponent = random.choice((random.randrange(form.top), random.choice(edges)))
    return (
        random.getrandbits(1) << (form.width - 1)
        | exponent << form.fraction
        | random.getrandbits(form.fraction)
    )
