#!/usr/bin/env bash
# The table of kernels has their registers, their occupancy and their instructions, and names what is wrong with them:
# kernel_table_test.sh SCRIPT
source "$(dirname "${BASH_SOURCE[0]}")/scaffold.sh"
script=$1
mkdir -p "$house/80" "$house/90a"

# of_ptxas KERNEL ARCH STORED LOADED REGISTERS BARRIERS_AND_SHARED
of_ptxas() {
  cat <<END
ptxas info    : Compiling entry function '$1' for 'sm_$2'
ptxas info    : Function properties for $1
    $3 bytes stack frame, $3 bytes spill stores, $4 bytes spill loads
ptxas info    : Used $5 registers, used 1 barriers$6
END
}
{
  of_ptxas _Z4goodv 90a 0 0 255 ""
  of_ptxas _Z3badv 90a 8 24 32 ", 2048 bytes smem"
} >"$house/90a/attention_mma.log"
of_ptxas _Z5plainv 80 4 4 40 "" >"$house/80/norms.log"
cat >"$house/90a/attention_mma.ptx" <<'END'
.extern .shared .align 16 .b8 _wide[];
.visible .entry _Z4goodv(
)
.maxntid 128, 1, 1
{
	mov.u32 	%r1, _wide;
	// begin inline asm
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%r1};
	cp.async.cg.shared.global [%r1], [%rd1], 16;
	cp.async.wait_group 0;
}
.visible .entry _Z3badv(
)
.maxntid 256, 1, 1
{
}
END
cat >"$house/80/norms.ptx" <<'END'
.visible .entry _Z5plainv(
)
.maxntid 256, 1, 1
{
}
END

make_table() { if perl "$script" "$house" >"$house/table"; then fail "defects were taken"; fi; }
make_table
rows=$(awk '/^sm_/ { print $1, $NF, $2, $3, $5, $6, $7, $8, $9 }' "$house/table")
[[ $rows == 'sm_90a bad 32 8/24 2048 256 8 100% threads
sm_90a good 255 0/0 0+ 128 <=2 <=12% registers
sm_80 plain 40 4/4 0 256 6 75% registers' ]] || fail "got: $rows"
grep -q 'mma 1 .* cp 1 .* good' "$house/table" || fail "instructions of PTX are not counted: $(<"$house/table")"
grep -q 'columns tensor and async are of the PTX.* for all files' "$house/table" || fail "missing columns have no name"
grep -A2 '3 kernels, 2 defects' "$house/table" | grep -q 'bad spills 8 bytes and reads 24' || fail "a spill is no defect"
grep -q 'sm_90a: bad has no instruction of tensor cores' "$house/table" || fail "missing tensor cores are no defect"

# What ptxas made of the PTX counts where there is a listing of it.
cat >"$house/90a/attention_mma.sass" <<'END'
.text._Z4goodv:
        /*0000*/                   LDGSTS.E.BYPASS.128 [R1], desc[UR4][R2.64] ;
        /*0010*/              @!P0 HMMA.16816.F32.BF16 R4, R8, R2, R4 ;
        /*0020*/                   HMMA.16816.F32.BF16 R4, R8, R2, R4 ;
.text._Z3badv:
        /*0000*/                   HMMA.16816.F32.BF16 R4, R8, R2, R4 ;
END
make_table
grep -q 'HMMA 2 .* LDGSTS 1 .* good' "$house/table" || fail "instructions are not counted: $(<"$house/table")"
grep -q 'of the PTX.* for norms.cu for sm_80' "$house/table" || fail "a missing listing has no name"
grep -q '3 kernels, 1 defects' "$house/table" || fail "got: $(tail -n 5 "$house/table")"
if perl "$script" "$house/none" 2>/dev/null; then fail "a folder without kernels was taken"; fi
echo "the table says what nvcc made of kernels"
