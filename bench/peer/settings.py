"""What an expert sets before training with PyTorch on a CPU, and the search for the best of it on this machine."""
import dataclasses
import glob
import os

FOLDER = os.path.dirname(os.path.abspath(__file__))
BUILT = os.path.normpath(os.path.join(FOLDER, "..", "..", "build", "peer"))
MODES = {"f32": ["f32"], "bf16": ["autocast", "master", "widen"]}


@dataclasses.dataclass(frozen=True)
class Setting:
    mode: str
    attention: str = "sdpa"  # F.scaled_dot_product_attention, or its products one by one
    optimizer: str = "fused"
    malloc: str = "tcmalloc"
    mkl: str = "own choice"  # of kernels for fp32 products, or those for Intel's CPUs (mkl_as_on_intel.c)
    threads: str = "free"  # or pinned; or pinned by Intel's OpenMP
    pages: str = "small"  # or large ones, of madvise()
    products: str = "oneDNN"  # bf16 products; or MKL's
    graph: str = "eager"  # or torch.compile
    experts: str = ""  # of a model that has them: PyTorch's grouped products; or "eager", a loop over the experts

    def __str__(self):
        words = {"sdpa": "SDPA", "explicit": "attention by products", "fused": "fused AdamW", "foreach": "foreach AdamW",
                 "own choice": "MKL's own choice", "free": "threads free", "small": "small pages"}
        values = [getattr(self, field.name) for field in dataclasses.fields(self)]
        values[-1] = f"{values[-1]} experts" if self.experts else ""
        return ", ".join(words.get(value, value) for value in values if value)

    def arguments(self):
        """Of train_step.py."""
        listed = ["--mode", self.mode, "--attention", self.attention, "--optimizer", self.optimizer]
        listed += ["--experts", self.experts] if self.experts else []
        return listed + ["--no-onednn"] * (self.products == "MKL") + ["--compile"] * (self.graph == "compiled")

    def environment(self, threads):
        preload, variables = [], {"OMP_NUM_THREADS": str(threads)}
        if self.malloc == "tcmalloc":
            preload.append("libtcmalloc.so.4")
            variables["TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD"] = str(1 << 40)
        if self.mkl == "MKL as on Intel":
            preload.append(os.path.join(BUILT, "mkl_as_on_intel.so"))
        if self.threads == "pinned":
            variables |= {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}
        if self.threads == "Intel's OpenMP":
            preload.append(intel_openmp())
            variables |= {"KMP_AFFINITY": "granularity=fine,compact,1,0", "KMP_BLOCKTIME": "1"}
        if self.pages == "large pages":
            variables["THP_MEM_ALLOC_ENABLE"] = "1"
        return variables | {"LD_PRELOAD": " ".join(preload)}


# On a GPU there is little to choose: compiled, with the attention that PyTorch takes for it, under autocast.
ON_GPU = Setting(mode="autocast", malloc="system's malloc", graph="compiled")


def intel_openmp():
    """The path of Intel's OpenMP; None if it is not installed."""
    return next(iter(glob.glob(os.path.join(BUILT, "venv", "lib", "**", "libiomp5.so"), recursive=True)), None)


def is_intel():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        return "GenuineIntel" in file.read()


def cap(isa):
    """Variables that keep PyTorch, oneDNN, MKL and torch.compile to what NOUGHT_ISA=isa leaves to Nought."""
    if not isa:
        return {"TORCHINDUCTOR_CACHE_DIR": os.path.join(BUILT, "compiled")}
    aten, onednn, mkl, march = {
        "avx2": ("avx2", "AVX2", "AVX2", "haswell"),
        "avx512": ("avx512", "AVX512_CORE", "AVX512", "skylake-avx512"),
        "avx512_bf16": ("avx512", "AVX512_CORE_BF16", "AVX512", "cooperlake"),
    }[isa]
    return {
        "ATEN_CPU_CAPABILITY": aten,
        "ONEDNN_MAX_CPU_ISA": onednn,
        "MKL_ENABLE_INSTRUCTIONS": mkl,
        "CXX": os.path.join(FOLDER, "cxx.sh"),
        "PEER_MARCH": march,
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(BUILT, f"compiled-{isa}"),
    }


def first_guess(modes, old):
    guess = Setting(mode=modes[0], mkl="own choice" if is_intel() else "MKL as on Intel")
    return dataclasses.replace(guess, attention="explicit", optimizer="foreach") if old else guess


def alternatives(modes, old, has_experts=False):
    """(field, values) in the order in which they are tried, each beside the best so far."""
    yield "mode", modes[1:]
    if has_experts:
        yield "experts", ["eager"]
    if not is_intel():
        yield "mkl", ["own choice"]
    yield "malloc", ["system's malloc"]
    yield "pages", ["large pages"]
    yield "threads", ["pinned"] + (["Intel's OpenMP"] if intel_openmp() else [])
    if not old:
        yield "optimizer", ["foreach"]
        yield "attention", ["explicit"]
    if "autocast" in modes:
        yield "products", ["MKL"]
    if not old:
        yield "graph", ["compiled"]


def search(modes, old, rate_of, has_experts=False):
    """The fastest setting found, by one change at a time; None if none ran. rate_of(setting) is 0 if it did not run."""
    tried = {}

    def rate(setting):
        if setting not in tried:
            tried[setting] = rate_of(setting)
        return tried[setting]

    best = first_guess(modes, old)
    rate(best)
    for field, values in alternatives(modes, old, has_experts):
        # `products` chooses between libraries for bf16 products, of which `widen` has none.
        if field == "products" and best.mode == "widen":
            continue
        changed = max((dataclasses.replace(best, **{field: value}) for value in values), key=rate, default=best)
        if rate(changed) > 1.01 * rate(best):  # less is the machine's noise
            best = changed
    return best if rate(best) > 0 else None
