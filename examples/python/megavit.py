"""megavit from Python: the shared library of `make lib` through ctypes. Copy this file and change it as you like.

    import megavit
    model = megavit.Model("siglip2-base-patch16-224")
    engine = megavit.Engine(model, max_images=8, threads=4)
    rows = engine.encode([picture, ...])           # numpy, uint8, [height, width, 3 or 4 or 1], or Pillow's in RGB, RGBA or L
                                                   # rows: float32 [pictures, width]
    rows = engine.encode(batch)                    # torch on the card, uint8 [n, S, S, 3]: nothing leaves the card, nothing waits

The library is looked for at MEGAVIT_LIBRARY, then where the system has it, then under build/ of a checkout. An Engine is used by one thread
at a time; ctypes lets other threads of Python run meanwhile.
"""
import ctypes
import ctypes.util
import os
import sys
from ctypes import POINTER, byref, c_char, c_char_p, c_int32, c_int64, c_uint32, c_uint64, c_void_p, sizeof

BACKENDS = {"auto": 0, "cpu": 1, "cuda": 2}
OUTPUTS = {"pooled": 0, "tokens": 1, "layer": 2, "deepstack": 3, "embeds": 4}
FORMATS = {1: 4, 3: 0, 4: 2}  # channels to mgv_pixel_format: grey, RGB, RGBA
BUSY = -8


class Error(Exception):
    """What the library says went wrong; code: mgv_result."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


# The first fields of the header's structs. Each says how long it is here, so a library whose structs have grown takes it, too.
class _Error(ctypes.Structure):
    _fields_ = [("code", c_int32), ("message", c_char * 508)]


class _Callbacks3(ctypes.Structure):
    _fields_ = [("user", c_void_p), ("a", c_void_p), ("b", c_void_p)]


class _Callbacks4(ctypes.Structure):
    _fields_ = [("user", c_void_p), ("open", c_void_p), ("read", c_void_p), ("close", c_void_p)]


class _Logger(ctypes.Structure):
    _fields_ = [("user", c_void_p), ("log", c_void_p)]


class _Parallel(ctypes.Structure):
    _fields_ = [("user", c_void_p), ("threads", c_uint32), ("run", c_void_p)]


class _ModelDesc(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("memory_file_count", c_uint32), ("path", c_char_p), ("memory_files", c_void_p),
                ("io", _Callbacks4), ("allocator", _Callbacks3), ("logger", _Logger), ("max_header_bytes", c_uint64)]


class _ModelInfo(ctypes.Structure):
    _fields_ = [("family", c_int32), ("family_name", c_char_p), ("hidden", c_uint32), ("intermediate", c_uint32), ("layers", c_uint32),
                ("heads", c_uint32), ("head_dim", c_uint32), ("patch", c_uint32), ("image_size", c_uint32), ("tokens_per_image", c_uint32),
                ("pooled_width", c_uint32), ("embed_width", c_uint32), ("token_width", c_uint32), ("deepstack_count", c_uint32),
                ("rest", c_char * 1024)]  # the library fills in all of its own struct


class _EngineDesc(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("backend", c_int32), ("device", c_int32), ("resize", c_int32), ("max_images", c_uint32),
                ("max_tokens", c_uint32), ("max_width", c_uint32), ("max_height", c_uint32), ("min_pixels", c_uint64),
                ("max_pixels", c_uint64), ("allocator", _Callbacks3), ("logger", _Logger), ("parallel", _Parallel),
                ("workspace", c_void_p), ("workspace_bytes", c_uint64), ("kernels", c_void_p), ("max_sms", c_uint32),
                ("max_row_outputs", c_uint32), ("packed_path", c_char_p), ("packed", c_void_p), ("packed_bytes", c_uint64),
                ("io", _Callbacks4), ("device_workspace", c_void_p), ("device_workspace_bytes", c_uint64),
                ("max_text_bytes", c_uint32), ("schedule_images", c_uint32), ("output_kinds", c_uint32), ("precision", c_int32)]


class _Image(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("format", c_int32), ("pixels", c_void_p), ("bytes", c_uint64), ("width", c_uint32),
                ("height", c_uint32), ("stride", c_int64), ("frames", c_uint32), ("place", c_int32)]


class _Output(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("kind", c_int32), ("index", c_uint32), ("place", c_int32), ("data", c_void_p),
                ("capacity", c_uint64), ("normalize", c_uint32), ("reserved", c_uint32)]


class _Shape(ctypes.Structure):
    _fields_ = [("rows", c_uint64), ("columns", c_uint64)]


class _EncodeDesc(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("image_count", c_uint32), ("images", POINTER(_Image)), ("outputs", POINTER(_Output)),
                ("output_count", c_uint32), ("reserved", c_uint32), ("stream", c_void_p)]


def _load():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "libmegavit.so")
    found = os.environ.get("MEGAVIT_LIBRARY") or ctypes.util.find_library("megavit") or here
    library = ctypes.CDLL(found)
    library.mgv_version.restype = c_char_p
    library.mgv_threads_parallel_for.restype = _Parallel
    pointers = {"mgv_threads_parallel_for": 1, "mgv_threads_destroy": 1, "mgv_model_close": 1, "mgv_model_get_info": 2,
                "mgv_engine_destroy": 1, "mgv_engine_backend": 1, "mgv_encode": 3, "mgv_cancel": 1, "mgv_model_open": 3,
                "mgv_engine_create": 4}
    for name, count in pointers.items():
        getattr(library, name).argtypes = [c_void_p] * count
    library.mgv_threads_create.argtypes = [c_void_p, c_uint32, c_void_p, c_void_p]
    library.mgv_engine_shape.argtypes = [c_void_p, c_void_p, c_uint32, c_void_p, c_void_p, c_void_p]
    library.mgv_wait.argtypes = [c_void_p, c_uint32, c_void_p]
    return library


_library = _load()
version = _library.mgv_version().decode()


def _call(name, *arguments):
    error = _Error()
    if getattr(_library, name)(*arguments, byref(error)) != 0:
        raise Error(error.code, error.message.decode())


def _array(numpy, picture):
    """A picture's bytes and mgv_pixel_format. Pillow's pictures have other modes of as many bytes, such as P and CMYK."""
    array, mode = numpy.ascontiguousarray(picture), getattr(picture, "mode", "RGB")
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.dtype != numpy.uint8 or array.ndim not in (2, 3) or channels not in FORMATS:
        raise ValueError("a picture is uint8 [height, width, 1, 3 or 4]; this one is %s %s" % (array.dtype, array.shape))
    if isinstance(mode, str) and mode not in ("L", "RGB", "RGBA"):  # of a tensor it is a function
        raise ValueError("a picture of Pillow's is RGB, RGBA or L; this one is %s: convert(\"RGB\")" % mode)
    return array, FORMATS[channels]


def _sized(struct, **fields):
    return struct(struct_size=sizeof(struct), **fields)


class Model:
    """A model, opened from a directory as Hugging Face stores it. info: mgv_model_info's numbers, by name."""

    def __init__(self, path):
        self._handle = c_void_p()
        desc = _sized(_ModelDesc, path=os.fsencode(path))
        _call("mgv_model_open", byref(self._handle), byref(desc))
        self.info = _ModelInfo()
        _library.mgv_model_get_info(self._handle, byref(self.info))

    def __del__(self):
        if getattr(self, "_handle", None):
            _library.mgv_model_close(self._handle)
            self._handle = None


class Engine:
    """One device and all the memory it will need. max_width and max_height: of the largest picture; 0: 4096. row_outputs: 1 where tokens,
    layers or DeepStack's rows are asked of a GPU into NumPy arrays. schedule_images: max_images, say, where a picture's rows are to have
    the same bits in any company. max_sms: multiprocessors of the card that it may use; 0: all. precision: as of the command line, "fast":
    in bf16 on CPUs that multiply it.
    kernels: the bytes of a megavit.fatbin, instead of those compiled into the library."""

    def __init__(self, model, backend="auto", device=0, max_images=1, max_tokens=0, max_width=0, max_height=0, threads=1,
                 row_outputs=0, schedule_images=0, max_sms=0, kernels=None, precision="auto"):
        self._handle, self._threads = c_void_p(), c_void_p()
        self.model, self._kernels = model, kernels and ctypes.create_string_buffer(kernels, len(kernels))  # outlive the engine
        self._kept = None   # pictures and rows of an encode under way
        desc = _sized(_EngineDesc, backend=BACKENDS[backend], device=device, max_images=max_images, max_tokens=max_tokens,
                      max_width=max_width, max_height=max_height, max_row_outputs=row_outputs, schedule_images=schedule_images,
                      max_sms=max_sms, kernels=ctypes.cast(self._kernels, c_void_p) if kernels else None)
        number = c_int32()
        _call("mgv_precision_of_name", precision.encode(), byref(number))
        desc.precision = number.value
        if threads > 1:
            _call("mgv_threads_create", byref(self._threads), threads, None)
            desc.parallel = _library.mgv_threads_parallel_for(self._threads)
        _call("mgv_engine_create", byref(self._handle), model._handle, byref(desc))
        self.backend = {1: "cpu", 2: "cuda"}[_library.mgv_engine_backend(self._handle)]

    def __del__(self):
        if getattr(self, "_handle", None):
            _library.mgv_cancel(self._handle)
            _library.mgv_engine_destroy(self._handle)
            self._handle = None
        if getattr(self, "_threads", None):
            _library.mgv_threads_destroy(self._threads)
            self._threads = None

    def encode(self, pictures, output="pooled", index=0, normalize=False):
        """Rows of float32. pictures: arrays, uint8 [height, width, channels] each, and the rows are NumPy's; or a torch tensor on the
        card, uint8 [n, S, S, 3] of the model's size: then the rows are a tensor there, in the order of torch's current stream."""
        self.wait()
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(pictures, torch.Tensor) and pictures.is_cuda:
            return self._encode_tensor(torch, pictures, output, index)
        import numpy
        if getattr(pictures, "ndim", 4) != 4:
            raise ValueError("pictures are a list or an array [n, height, width, channels]; this one is %s"
                             % (tuple(pictures.shape),))
        taken = [_array(numpy, picture) for picture in pictures]
        images = (_Image * max(len(taken), 1))()
        for image, (array, pixel_format) in zip(images, taken):
            image.__init__(sizeof(_Image), pixel_format, array.ctypes.data, array.nbytes, array.shape[1], array.shape[0])
        out = _sized(_Output, kind=OUTPUTS[output], index=index, normalize=normalize)
        shape = _Shape()
        _call("mgv_engine_shape", self._handle, images, len(taken), byref(out), byref(shape))
        rows = numpy.empty((shape.rows, shape.columns), numpy.float32)
        out.data, out.capacity = rows.ctypes.data, rows.size
        self._begin(images, len(taken), out, None, (taken, rows))
        self.wait()
        return rows

    def _encode_tensor(self, torch, batch, output, index):
        if batch.dtype != torch.uint8 or batch.ndim != 4 or batch.shape[3] != 3 or not batch.is_contiguous():
            raise ValueError("pictures on the card are one contiguous uint8 tensor [n, S, S, 3]")
        count, height, width = batch.shape[:3]
        images = (_Image * max(count, 1))()
        for i in range(count):
            images[i].__init__(sizeof(_Image), 0, batch.data_ptr() + i * batch.stride(0), height * width * 3, width, height, 0, 0, 1)
        out = _sized(_Output, kind=OUTPUTS[output], index=index, place=1)
        shape = _Shape()
        _call("mgv_engine_shape", self._handle, images, count, byref(out), byref(shape))
        rows = torch.empty((shape.rows, shape.columns), dtype=torch.float32, device=batch.device)
        out.data, out.capacity = rows.data_ptr(), rows.numel()
        self._begin(images, count, out, torch.cuda.current_stream(batch.device).cuda_stream, (batch, rows))
        return rows

    def _begin(self, images, count, out, stream, kept):
        desc = _sized(_EncodeDesc, image_count=count, images=images, outputs=ctypes.pointer(out), output_count=1, stream=stream)
        _call("mgv_encode", self._handle, byref(desc))
        self._kept = kept

    def wait(self):
        """Until the encode under way has ended; Ctrl-C cancels it."""
        while self._kept is not None:
            try:
                _call("mgv_wait", self._handle, 100)
            except Error as error:
                if error.code == BUSY:
                    continue
                self._kept = None
                raise
            except KeyboardInterrupt:
                self.cancel()
                raise
            self._kept = None

    def cancel(self):
        """Ends the encode under way; what it was to fill means nothing then."""
        _library.mgv_cancel(self._handle)
        while self._kept is not None and _library.mgv_wait(self._handle, 1000, None) == BUSY:
            pass
        self._kept = None
