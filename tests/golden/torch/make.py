"""Writes archives as torch.save() does, without torch: python3 make.py. Run by hand; the files are committed.

The layout is that of torch 2: a ZIP archive, stored, with archive/data.pkl (protocol 2), archive/byteorder, archive/data/KEY
at multiples of 64 bytes, and archive/version.
"""
import collections, io, os, pickle, struct, sys, types, zipfile

torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
sys.modules.update({"torch": torch, "torch._utils": utils})


def named(name, module):
    def function(*arguments):
        raise RuntimeError("nobody calls this")
    function.__name__ = function.__qualname__ = name
    function.__module__ = module.__name__
    setattr(module, name, function)
    return function


rebuild_tensor, rebuild_parameter = named("_rebuild_tensor_v2", utils), named("_rebuild_parameter", utils)
STORAGES = {"f": "FloatStorage", "e": "HalfStorage", "q": "LongStorage", "?": "BoolStorage", "h": "BFloat16Storage"}
for storage in STORAGES.values():
    setattr(torch, storage, type(storage, (), {"__module__": "torch"}))


class Storage:
    def __init__(self, code, values):
        self.code, self.values = code, values
        self.raw = struct.pack(f"<{len(values)}{code}", *values)


class Tensor:
    def __init__(self, storage, size, offset=0, stride=None, parameter=False):
        contiguous = []
        for extent in reversed(size):
            contiguous.insert(0, contiguous[0] * size[len(size) - len(contiguous)] if contiguous else 1)
        self.storage, self.size, self.offset = storage, tuple(size), offset
        self.stride, self.parameter = tuple(stride or contiguous), parameter


class Pickler(pickle.Pickler):
    def __init__(self, file):
        super().__init__(file, protocol=2)
        self.storages = []

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        if value not in self.storages:
            self.storages.append(value)
        return ("storage", getattr(torch, STORAGES[value.code]), str(self.storages.index(value)), "cpu", len(value.values))

    def reducer_override(self, value):
        if not isinstance(value, Tensor):
            return NotImplemented
        arguments = (value.storage, value.offset, value.size, value.stride, False, collections.OrderedDict())
        if value.parameter:
            return rebuild_parameter, (Tensor(value.storage, value.size, value.offset, value.stride), True,
                                       collections.OrderedDict())
        return rebuild_tensor, arguments


def save(path, value, method=zipfile.ZIP_STORED):
    pickled = io.BytesIO()
    pickler = Pickler(pickled)
    pickler.dump(value)
    with zipfile.ZipFile(path, "w", method) as archive:
        def write(name, data):
            entry = zipfile.ZipInfo("archive/" + name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = method
            begin = archive.fp.tell() + 30 + len(entry.filename)
            padding = -(begin + 4) % 64
            entry.extra = struct.pack("<HH", 0x4246, padding) + b"Z" * padding  # "FB", as torch pads
            archive.writestr(entry, data)
        write("data.pkl", pickled.getvalue())
        write("byteorder", b"little")
        for i, storage in enumerate(pickler.storages):
            write(f"data/{i}", storage.raw)
        write("version", b"3\n")


shared = Storage("f", [0.5 * i for i in range(12)])
state = collections.OrderedDict(
    whole=Tensor(shared, [3, 4]),
    tail=Tensor(shared, [2, 2], offset=8, parameter=True),
    half=Tensor(Storage("e", [1.5, -2.0]), [2]),
    ids=Tensor(Storage("q", [7, -9]), [2, 1]),
    flag=Tensor(Storage("?", [True]), []),
)
state._metadata = collections.OrderedDict([("", {"version": 1})])
save("state.bin", state)
save("nested.pt", {"epoch": 3, "lr": 0.25, "module": {"w": Tensor(Storage("f", [1.0, 2.0]), [2])}})
save("transposed.pt", {"w": Tensor(shared, [4, 3], stride=[1, 4])})
save("beyond.pt", {"w": Tensor(shared, [4, 4])})
save("compressed.pt", {"w": Tensor(shared, [3, 4])}, zipfile.ZIP_DEFLATED)

many = {}
for _ in range(12):
    many = {key: many for key in "abcdefgh"}
save("many.pt", many)


class Command:
    def __reduce__(self):
        return os.system, ("touch pwned",)


save("command.pt", {"w": Tensor(shared, [3, 4]), "x": Command()})
