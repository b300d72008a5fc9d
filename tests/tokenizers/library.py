"""megavit.h's tokenizers, through ctypes."""
import ctypes
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAPACITY = -7


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("message", ctypes.c_char * 508)]


class Description(ctypes.Structure):
    """mgv_model_desc; what is not named here stays zero."""
    _fields_ = [("struct_size", ctypes.c_uint32), ("memory_file_count", ctypes.c_uint32), ("path", ctypes.c_char_p),
                ("rest", ctypes.c_void_p * 12)]


class State(ctypes.Structure):
    _fields_ = [("words", ctypes.c_uint32 * 4), ("held", ctypes.c_uint8 * 8)]


def build(work):
    """Compiles the header; the path of the shared library."""
    source, library = work / "megavit_text.c", work / "megavit_text.so"
    source.write_text('#define MEGAVIT_TEXT\n#define MEGAVIT_NO_CUDA\n#define MEGAVIT_IMPLEMENTATION\n#include "megavit.h"\n', encoding="utf-8")
    subprocess.run(["gcc", "-std=c99", "-O2", "-fPIC", "-shared", f"-I{ROOT}", str(source), "-o", str(library), "-lm", "-lpthread"], check=True)
    return ctypes.CDLL(str(library))


class Tokenizer:
    def __init__(self, library, path, lower_case=0):
        self.library, self.handle, self.error = library, ctypes.c_void_p(), Error()
        self.room = (ctypes.c_uint32 * (1 << 16))()
        description = Description()
        description.path = str(path).encode()
        if library.mgv_tokenizer_open(ctypes.byref(self.handle), ctypes.byref(description), lower_case, ctypes.byref(self.error)):
            raise ValueError(self.error.message.decode())

    def encode(self, text, flags=0):
        data = text if isinstance(text, bytes) else text.encode("utf-8")
        count = ctypes.c_uint64()
        if len(self.room) < len(data) + 16:
            self.room = (ctypes.c_uint32 * (len(data) + 16))()
        result = self.library.mgv_tokenize(self.handle, data, ctypes.c_size_t(len(data)), flags, self.room, ctypes.c_uint64(len(self.room)),
                                           ctypes.byref(count), ctypes.byref(self.error))
        if result == CAPACITY:
            self.room = (ctypes.c_uint32 * count.value)()
            return self.encode(text, flags)
        if result:
            raise ValueError(self.error.message.decode())
        return self.room[:count.value]

    def decode(self, ids, flags=0, state=None):
        array, count = (ctypes.c_uint32 * max(1, len(ids)))(*ids), ctypes.c_uint64(64 + 16 * len(ids))
        while True:
            text = ctypes.create_string_buffer(max(1, count.value))
            result = self.library.mgv_detokenize(self.handle, ctypes.byref(state) if state is not None else None, array,
                                                 ctypes.c_uint64(len(ids)), flags, text, count, ctypes.byref(count), ctypes.byref(self.error))
            if result != CAPACITY:
                break
        if result:
            raise ValueError(self.error.message.decode())
        return text.raw[:count.value]
