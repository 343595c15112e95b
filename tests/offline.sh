#!/bin/bash
# Compiles the kernels of cl/ for hardware that is not here, with the options that the engine builds them with, and
# prints what each needs.  A spill in a kernel of the GPU family is a failure.
#   offline.sh [-t "TARGET..."] [-q] [-j N] [-c CACHE] [CL_DIR]
# -q: a few formats and shapes instead of all; -j: files compiled at once; -c: a folder that keeps the rows of what
# compiled, by the preprocessed text, the options and the compilers, so that only what changed is made again.
# Targets: gfxNNN (AMD), sm_NN (NVIDIA: clang to PTX, then ptxas), skl tgllp dg2 pvc (Intel, by ocloc), spirv (with
# spirv-val), base (strict OpenCL C 1.2 without any extension, warnings are errors).
# Columns: registers of a work-item (Intel: of a thread), spilled registers (AMD: vector+scalar) or bytes (others),
# private and local memory in bytes, waves (AMD, of a SIMD) or warps (NVIDIA, of an SM) that the registers allow.
# Exit: 0 all compiled without a spill, 1 not, 2 usage, 77 no clang with libclc here.  Needs clang-15 libclc-15
# llvm-spirv-15 spirv-tools; ptxas for the rows of NVIDIA; ocloc (intel-opencl-icd) for those of Intel.
set -u
targets="base spirv gfx906 gfx1030 gfx1100 sm_75 sm_80 sm_90 skl tgllp dg2 pvc"
std=CL1.2
only= # of the targets, for what is not for all of them
quick=
jobs=1 cache=''
while getopts t:qj:c: o; do
    case $o in
        t) targets=$OPTARG ;;
        q) quick=1 ;;
        j) jobs=$OPTARG ;;
        c) cache=$OPTARG ;;
        *) sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
dir=${1:-$(dirname "$0")/../cl}
ver=${FORGE_CLANG_VERSION:-15} # libclc's bitcode is readable only by the clang of the same version
clang=$(command -v "clang-$ver") || { echo "offline: no clang-$ver" >&2; exit 77; }
clc=${FORGE_LIBCLC:-/usr/lib/clc}
ptxas=$(command -v ptxas || true)
[ -n "$ptxas" ] || for p in /usr/local/cuda/bin/ptxas /usr/lib/cuda/bin/ptxas; do [ -x "$p" ] && ptxas=$p; done
all=$(mktemp -d) || exit 1 # tmp: a file's own folder in it
trap 'rm -rf "$all"' EXIT
[ -z "$cache" ] || mkdir -p "$cache" || exit 1
row() { printf '%-8s %-24s %5s %5s %6s %8s %8s %6s  %s\n' "$@"; }

amd() { # $1 = gfx name
    "$clang" -target amdgcn-amd-amdhsa "-mcpu=$1" -nogpulib "${common[@]}" -Xclang -mlink-builtin-bitcode \
        -Xclang "$clc/amdgcn--amdhsa.bc" -S -o "$tmp/a.s" "$src" || return 1
    awk -v gpu="$1" '
        /^amdhsa.kernels:/ { on = 1 }
        !on { next }
        /^ +(- )?\.group_segment_fixed_size:/ { lds = $NF }
        /^ +(- )?\.private_segment_fixed_size:/ { priv = $NF }
        /^ +(- )?\.sgpr_count:/ { s = $NF }
        /^ +(- )?\.symbol:/ { name = $NF; sub(/\.kd$/, "", name) }
        /^ +(- )?\.vgpr_count:/ { v = $NF }
        /^ +(- )?\.sgpr_spill_count:/ { ss = $NF }
        /^ +(- )?\.vgpr_spill_count:/ { vs = $NF }
        /^ +(- )?\.wavefront_size:/ {
            if (gpu == "gfx90a") { file = 512; step = 8; most = 8 }
            else if (gpu ~ /^gfx11/) { file = 1536; step = 24; most = 16 }
            else if (gpu ~ /^gfx10/) { file = 1024; step = 8; most = 16 }
            else { file = 256; step = 4; most = 10 }
            n = v > 0 ? int(file / (step * int((v + step - 1) / step))) : most
            if (n > most) n = most
            note = (vs > 0 ? "SPILLS " : "") (priv > 0 ? "PRIVATE MEMORY" : "")
            printf "%-8s %-24s %5d %5d %6s %8d %8d %6d  %s\n", gpu, name, v, s, vs "+" ss, priv, lds, n, note }' "$tmp/a.s"
}

# $1 = sm name.  libclc's native_exp and native_log end in C library calls there, so the full ones stand in; it has no
# get_global_offset, which the driver reads from a special register: another one stands in
nvidia() {
    [ -e "$tmp/a.ptx" ] || "$clang" -target nvptx64-nvidia-nvcl "${common[@]}" -Dnative_exp=exp -Dnative_log=log \
        "-Dget_global_offset(d)=(size_t)__nvvm_read_ptx_sreg_nctaid_w()" \
        -Xclang -mlink-builtin-bitcode -Xclang "$clc/nvptx64--nvidiacl.bc" -Xclang -target-cpu -Xclang sm_70 \
        -S -o "$tmp/a.ptx" "$src" || { rm -f "$tmp/a.ptx"; return 1; }
    [ -n "$ptxas" ] || { row "$1" "(PTX only: no ptxas)" - - - - - - ""; return 0; }
    "$ptxas" -arch "$1" -v "$tmp/a.ptx" -o "$tmp/a.cubin" >"$tmp/ptxas.txt" 2>&1 || { cat "$tmp/ptxas.txt"; return 1; }
    awk -v gpu="$1" '
        function put() {
            if (name == "") return
            most = gpu == "sm_75" ? 32 : gpu ~ /^sm_8[69]$|^sm_12/ ? 48 : 64
            n = r > 0 ? int(65536 / (32 * 8 * int((r + 7) / 8))) : most
            if (n > most) n = most
            printf "%-8s %-24s %5d %5s %6d %8d %8d %6d  %s\n", gpu, name, r, "-", spill, stack, smem, n,
                (spill > 0 ? "SPILLS " : "") (stack > 0 ? "PRIVATE MEMORY" : "")
        }
        /Compiling entry function/ { put(); split($0, q, "\047"); name = q[2]; r = spill = stack = smem = 0 }
        /bytes stack frame/ { stack = $1; spill = $5 + $9 }
        /Used [0-9]+ registers/ {
            for (i = 1; i <= NF; i++) { if ($i == "Used") r = $(i + 1); if ($i == "bytes" && $(i + 1) ~ /^smem/) smem = $(i - 1) } }
        END { put() }' "$tmp/ptxas.txt"
}

intel() { # $1 = ocloc's device name; the widest SIMD without spills counts, as for the driver
    command -v ocloc >/dev/null || { row "$1" "(skipped: no ocloc)" - - - - - - ""; return 0; }
    local least='' images='' # least: lanes of the smallest sub-groups, which the engine asks for and tells from 16 on
    [ "$1" = pvc ] && least=-DSUB_LEAST=16
    # it has no images, which ocloc's own header for OpenCL C 3.0 cannot do without
    [ "$1$std" = pvcCL3.0 ] && images="-cl-ext=+__opencl_c_images,+__opencl_c_3d_image_writes,+cl_khr_3d_image_writes,+__opencl_c_read_write_images"
    rm -rf "$tmp/igc"
    mkdir "$tmp/igc"
    IGC_ShaderDumpEnable=1 IGC_DumpToCustomDir=$tmp/igc ocloc compile -file "$src" -device "$1" -out_dir "$tmp/ocloc" \
        -options "-cl-std=$std -I $dir $defs $least" ${images:+-internal_options "$images"} >"$tmp/ocloc.txt" 2>&1
    grep -q 'Build succeeded' "$tmp/ocloc.txt" || { head -n 20 "$tmp/ocloc.txt"; return 1; }
    awk -v gpu="$1" '
        function put() {
            if (name == "" || ((name in simd) && (spill > least[name] || (spill == least[name] && wide < simd[name])))) return
            simd[name] = wide; least[name] = spill; regs[name] = grf
        }
        FNR == 1 { put(); name = ""; spill = 0; match(FILENAME, /simd[0-9]+/); wide = substr(FILENAME, RSTART + 4, RLENGTH - 4) + 0 }
        FNR > 40 { next }
        /^\/\/\.kernel/ { name = $2 }
        /numGRF=/ { split($0, q, /numGRF=|,/); grf = q[2] }
        /^\/\/\.spill size/ { spill = $NF }
        END { put(); for (n in simd) printf "%-8s %-24s %5d %5s %6d %8s %8s %6s  SIMD%d %s\n", gpu, n, regs[n], "-", least[n],
            "-", "-", "-", simd[n], (least[n] > 0 ? "SPILLS" : "") }' "$tmp"/igc/*.asm | sort -k2,2
}

spirv() {
    local v32 missing
    for v32 in spir spir64; do
        "$clang" -target "$v32" "${common[@]}" -O0 -Xclang -disable-O0-optnone -emit-llvm -c -o "$tmp/$v32.bc" "$src" || return 1
        "llvm-spirv-$ver" --spirv-max-version=1.0 "$tmp/$v32.bc" -o "$tmp/$v32.spv" || return 1
        spirv-val --target-env opencl1.2 "$tmp/$v32.spv" || return 1
    done
    spirv-dis --no-color "$tmp/spir64.spv" >"$tmp/spv.txt"
    row spirv "$(grep -c 'OpEntryPoint Kernel' "$tmp/spv.txt") kernels valid" - - - - - - \
        "capabilities: $(awk '$1 == "OpCapability" { printf "%s ", $2 }' "$tmp/spv.txt")"
    missing=$(awk '/Import$/ && !/__spirv_BuiltIn/ { printf "%s ", $4 }' "$tmp/spv.txt")
    [ -z "$missing" ] || { echo "spirv    unresolved: $missing(a plain inline function? write static inline)"; return 1; }
}

base() {
    "$clang" -target spir64 "${common[@]}" -Xclang -cl-ext=-all -Wall -Wextra -Wdouble-promotion -Wshadow -Wno-unused-parameter \
        -Werror -fsyntax-only "$src" && row base "OpenCL C 1.2, no extension" - - - - - - ok
}

# what the compilers see of a file, without comments; once more as the compilers that know sub-groups see it
text() {
    local more
    for more in -DNO_MORE "-Dcl_intel_required_subgroup_size -Dcl_khr_subgroups -Dcl_intel_subgroups -DSUB_LEAST=16"; do
        # shellcheck disable=SC2086 # words
        "$clang" -target spir64 -x cl "-cl-std=$std" -E -P -I "$dir" $defs $more "$src" 2>/dev/null
    done | tr -s ' \t\n' ' '
}

one_target() {
    case $1 in
        gfx*) [ -e "$clc/amdgcn--amdhsa.bc" ] && amd "$1" ;;
        sm_*) [ -e "$clc/nvptx64--nvidiacl.bc" ] && nvidia "$1" ;;
        spirv) if command -v "llvm-spirv-$ver" spirv-val spirv-dis >/dev/null; then spirv; else row spirv "(skipped: no llvm-spirv)" - - - - - - ""; fi ;;
        base) base ;;
        *) intel "$1" ;;
    esac
}

# the rows of the file src for all targets; fails where one fails, or spills where that is a failure
one_file() {
    local t kept text='' rc=0
    mkdir "$tmp"
    [ -z "$cache" ] || text=$(text)
    echo "$(basename "$src") $defs"
    for t in $targets; do
        [ -z "$only" ] || case " $only " in *" $t "*) ;; *) continue ;; esac
        kept=${cache:+$cache/$(echo "$t $std $defs $tools $(declare -f one_target amd nvidia intel spirv base) $text" | sha256sum | cut -d' ' -f1)}
        if [ -n "$kept" ] && [ -e "$kept" ]; then
            cp "$kept" "$tmp/rows.txt"
        elif ! one_target "$t" >"$tmp/rows.txt" 2>&1; then
            row "$t" FAILED - - - - - - "" >>"$tmp/rows.txt"
            rc=1
        elif [ -n "$kept" ] && ! grep -q skipped "$tmp/rows.txt"; then
            cp "$tmp/rows.txt" "$kept.$BASHPID" && mv "$kept.$BASHPID" "$kept"
        fi
        cat "$tmp/rows.txt"
        if [ "$spills" = gpu ] && grep -q SPILLS "$tmp/rows.txt"; then rc=1; fi
    done
    return "$rc"
}

# prints what is done, in the order in which it was begun
show() {
    while [ -e "$all/$((shown + 1)).done" ]; do
        shown=$((shown + 1))
        cat "$all/$shown.txt"
        [ "$(cat "$all/$shown.done")" = 0 ] || rc=1
    done
}

# begins a file with one set of options; $1: is a spill a failure?
compile() {
    spills=$1 src=$dir/$2
    shift 2
    defs="$*"
    common=(-x cl "-cl-std=$std" -Xclang -finclude-default-header -Wno-linker-warnings -Wno-pass-failed -O3 -I "$dir" "$@")
    begun=$((begun + 1)) tmp=$all/$begun
    (one_file >"$tmp.txt" 2>&1; echo $? >"$tmp.part"; mv "$tmp.part" "$tmp.done"; rm -rf "$tmp") &
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    show
}

for t in $targets; do
    case $t in
        base | spirv | gfx* | sm_* | skl | tgllp | dg1 | dg2 | acm* | adl* | pvc) ;;
        *) echo "offline: unknown target $t" >&2; exit 2 ;;
    esac
    case $t in gfx* | sm_*) ls "$clc"/amdgcn--amdhsa.bc "$clc"/nvptx64--nvidiacl.bc >/dev/null 2>&1 || { echo "offline: no libclc-$ver" >&2; exit 77; } ;; esac
done
# what compiles: other compilers, other rows
[ -z "$cache" ] || tools=$(ls -lL "$clang" "$ptxas" "$(command -v ocloc)" "$(command -v "llvm-spirv-$ver")" "$clc"/amdgcn--amdhsa.bc \
    "$clc"/nvptx64--nvidiacl.bc "$(ldconfig -p 2>/dev/null | awk '/libigc/ { print $NF; exit }')" 2>/dev/null)
begun=0 shown=0
row target kernel regs sgpr spill private local waves note
rc=0
# format, is it split, is it read in units of 16 bytes: as linear_gpu.c builds them
formats="F32:0:1 F16:0:1 BF16:0:1 Q8_0:1:1 Q4_0:1:1 Q4_K:0:1 F32:0:0 BF16:0:0 Q8_0:0:0 Q4_0:0:0 Q4_1:0:0 Q5_0:0:0 Q5_1:0:0 Q2_K:0:0 Q3_K:0:0 Q5_K:0:0 Q6_K:0:0"
# head_dim, query heads of a kv head, heads and tokens of a tile, keys of a set: as attention_gpu.c chooses them
shapes="64:1:1:8:4 64:4:4:2:4 64:8:8:1:4 80:1:1:8:4 96:2:2:4:4 128:1:1:1:16 128:2:2:1:8 128:2:2:4:4 128:4:4:2:4 128:8:8:1:4 256:1:1:4:4 256:4:4:1:4"
if [ -n "$quick" ]; then formats="BF16:0:1 Q8_0:1:1 Q6_K:0:0" shapes="128:2:2:1:8 128:2:2:4:4"; fi
for f in $formats; do
    IFS=: read -r wt split units <<<"$f"
    compile gpu linear_gpu.cl -DWT=WT_$wt -DSPLIT=$split -DUNITS=$units
    compile gpu experts_gpu.cl -DWT=WT_$wt -DSPLIT=$split -DUNITS=$units
    compile gpu fused_gpu.cl -DWT=WT_$wt -DSPLIT=$split -DUNITS=$units
done
for s in $shapes; do
    IFS=: read -r hd g gb bt nk <<<"$s"
    compile gpu attn_gpu.cl -DHD=$hd -DG=$g -DGB=$gb -DBT=$bt -DNK=$nk -DKV_F16=1
done
# variants: sub-groups are in no libclc, so that only Intel's compiler tells of them; integer dots are not in ocloc
# 22.43 either (it leaves calls to what it does not know)
only="skl tgllp dg2 pvc" std=CL3.0
for f in F16:0 BF16:0 Q8_0:1 Q4_0:1 Q4_K:0; do
    compile gpu linear_sub.cl -DWT=WT_${f%:*} -DSPLIT=${f#*:} -DUNITS=1 -DSUB=1
done
compile gpu linear_fast.cl -DWT=WT_F16 -DSPLIT=0 -DUNITS=1 -DDOT=0
for s in 64:4:4:2:4 128:2:2:1:8 128:2:2:4:4 256:4:4:1:4; do
    IFS=: read -r hd g gb bt nk <<<"$s"
    compile gpu attn_gpu.cl -DHD=$hd -DG=$g -DGB=$gb -DBT=$bt -DNK=$nk -DKV_F16=1 -DSUB=1
done
only="" std=CL1.2
compile gpu norm_gpu.cl
compile gpu pick_gpu.cl
compile gpu embed_gpu.cl -DWT=WT_Q8_0 -DSPLIT=1
for f in elem_gpu.cl gemm.cl rope.cl route.cl pick.cl; do compile gpu $f; done
compile gpu kv.cl -DKV_F16=1
wait
show
if [ "$shown" -ne "$begun" ]; then # a worker that was killed leaves nothing
    none=0
    for ((i = shown + 1; i <= begun; i++)); do [ -e "$all/$i.done" ] || none=$((none + 1)); done
    echo "offline: $none of $begun files have no result" >&2
    rc=1
fi
exit $rc
