"""libmha from Python: every struct and function of mha.h, read from the header itself, so that nothing is written down
twice and nothing can go stale. Arrays are torch tensors, which have what a mha_tensor asks for: memory, sizes, strides.

    lib = mha.Library(prefix)  # where `cmake --install` put it
    options = lib.defaults("layer", width=768, heads=12)
    with lib.made("layer", byref(options), None) as layer:
        lib.mha_layer_forward(lib.context, layer, lib.view(out), None, byref(inputs), None, None)

A call that returns anything but MHA_OK raises mha.Error with the context's text."""
import contextlib
import ctypes
import pathlib
import re

import torch

SCALARS = {
    "bool": ctypes.c_bool,
    "char": ctypes.c_char,
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
}
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.bool: 3, torch.int64: 4, torch.int32: 5}


class Error(Exception):
    """A status that is not MHA_OK."""


class Library:
    """The header's functions are its methods, the header's structs are in `struct`, by their names in C."""

    def __init__(self, prefix, libraries=None):
        """`libraries`: the folder of libmha.so, if it is another one, such as that of a build."""
        header = next(pathlib.Path(prefix).rglob("mha.h")).read_text(encoding="utf-8")
        self.text = re.sub(r"/\*.*?\*/", "", header, flags=re.S).replace("\\\n", " ")
        self.dll = ctypes.CDLL(str(next(pathlib.Path(libraries or prefix).rglob("libmha.so"))))
        self.struct, self.constant = {}, {}
        self.read_enums()
        self.read_structs()
        self.read_functions()
        self.context = ctypes.c_void_p()
        self.mha_context_create(ctypes.byref(self.context), None)

    def read_enums(self):
        for name, body in re.findall(r"typedef enum (\w+) \{(.*?)\}", self.text, re.S):
            self.struct[name] = ctypes.c_int
            self.constant.update((word, int(value)) for word, value in re.findall(r"(\w+) = (\d+)", body))
        for word, value in re.findall(r"#define (MHA_\w+) INT64_C\((.*)\)", self.text):
            self.constant[word] = int(value)

    def read_structs(self):
        """Those that hold functions (the allocator and what holds one) are left out; a NULL stands for them."""
        for name, body in re.findall(r"typedef struct (\w+) \{([^(]*?)\} \1;", self.text):
            try:
                fields = [field for line in body.split(";") for field in self.read_fields(line)]
            except KeyError:
                continue
            self.struct[name] = type(name, (ctypes.Structure,), {"_fields_": fields})

    def read_fields(self, line):
        """'const int64_t *offsets', 'int64_t size[4]' or 'mha_tensor query, key': (name, type) of each."""
        words = line.replace("const ", "").split(None, 1)
        for name in words[1].split(",") if words else []:
            kind = self.type_of(words[0], "*" in name)
            count = re.search(r"\[(\d+)\]", name)
            yield re.search(r"\w+", name).group(), kind * int(count.group(1)) if count else kind

    def type_of(self, word, pointer):
        if pointer:
            return ctypes.c_char_p if word == "char" else ctypes.c_void_p
        return SCALARS[word] if word in SCALARS else self.struct[word]

    def read_functions(self):
        for result, pointer, name, arguments in re.findall(
            r"MHA_API (?:const )?(\w+) (\*?)(\w+)\((.*?)\);", self.text, re.S
        ):
            function = self.dll[name]
            function.restype = None if result == "void" else self.type_of(result, pointer)
            words = [argument.replace("const ", "").split()[0] for argument in arguments.split(",")]
            stars = ["*" in argument for argument in arguments.split(",")]
            function.argtypes = [self.type_of(*each) for each in zip(words, stars) if each != ("void", False)]
            if result == "mha_status":
                function.errcheck = self.must_be_ok
            setattr(self, name, function)

    def must_be_ok(self, status, function, arguments):
        if status:
            about = self.mha_context_error(self.context).decode() if self.context else ""
            raise Error(f"{function.__name__}: {self.mha_status_name(status).decode()}: {about}")
        return arguments

    def defaults(self, noun, **changes):
        """The options of a noun such as layer, as mha_NOUN_defaults fills them in, with the fields named here changed."""
        struct = self.struct[f"mha_{noun}_options"]()
        getattr(self, f"mha_{noun}_defaults")(ctypes.byref(struct), ctypes.sizeof(struct))
        for name, value in changes.items():
            setattr(struct, name, value)
        return struct

    @contextlib.contextmanager
    def made(self, noun, *arguments):
        """What mha_NOUN_create makes, until the end of the with."""
        handle = ctypes.c_void_p()
        getattr(self, f"mha_{noun}_create")(self.context, ctypes.byref(handle), *arguments)
        try:
            yield handle
        finally:
            getattr(self, f"mha_{noun}_free")(handle)

    def view(self, x):
        """A torch tensor as a mha_tensor, whatever its strides; the caller keeps it alive."""
        tensor = self.struct["mha_tensor"](data=x.data_ptr(), type=TYPES[x.dtype], rank=x.dim())
        tensor.size[: x.dim()], tensor.stride[: x.dim()] = x.shape, x.stride()
        return tensor

    @staticmethod
    def part(block, tensor):
        """A mha_tensor that lies in a block of float32 numbers, as a torch tensor over the same memory."""
        first = block.storage_offset() + (tensor.data - block.data_ptr()) // block.element_size()
        return block.as_strided(tensor.size[: tensor.rank], tensor.stride[: tensor.rank], first)
