/* A CUDA runtime that a test holds in its hand: device memory is malloc's, everything is done at once or, while the stream is captured,
   written down for fake_replay; any call can be made to fail, and what is allocated and never given back is counted. One at a time. */
#ifndef MGV_TESTS_FAKE_CUDA_H
#define MGV_TESTS_FAKE_CUDA_H

#include <cuda.h>
#include <cuda_runtime_api.h>

enum { FAKE_MAX_BLOCKS = 64, FAKE_EVENTS = 16, FAKE_STREAMS = 16, FAKE_NODES = 16, FAKE_OTHERS = 2 };
typedef enum fake_kind { FAKE_DEVICE_MEMORY = 1, FAKE_PINNED_MEMORY } fake_kind;

typedef struct fake_block {
    fake_kind kind;
    uint8_t *memory;
    size_t bytes;
} fake_block;

/* One thing that a stream does, as part of a graph. */
typedef struct fake_node {
    enum { FAKE_COPY, FAKE_SET, FAKE_LAUNCH, FAKE_RECORD } kind;
    void *to;
    const void *from;
    size_t bytes;
    int byte;
    mgv__kernel_arguments arguments;
} fake_node;
typedef struct fake_graph {
    fake_node nodes[FAKE_NODES];
    int count;
} fake_graph;

/* Another kernel, by how its names begin, NULL: there is none, with its description. */
typedef struct fake_other {
    const char *begins, *described;
    uint32_t description[5];
    size_t description_bytes;
    void (*kernel)(const void *arguments);
} fake_other;

typedef struct fake_cuda {
    size_t most_bytes;         /* that one allocation may have; 0: any number */
    uint64_t calls;            /* of functions that can fail */
    uint64_t fail_at;          /* this one fails (from 1; 0: none), and with fail_from every later one */
    int fail_from;
    const char *fail_name;     /* or: every call of this name fails */
    cudaError_t fail_code;
    cudaEvent_t fail_record;   /* recording this event fails */
    const char *failed;        /* the name of the last call that failed */
    int no_driver_function;    /* cuTensorMapEncodeTiled is not there */
    int refuse_maps;           /* it refuses every tensor map */
    const char *missing;       /* a name that the kernels do not have */
    int driver, runtime, devices, device, major, minor, multiprocessors, shared, cooperative;
    int broken_up;             /* 1 + the clusters that run at once, fewer than multiprocessors would make; 0: as many */
    uint32_t description[5];
    size_t description_bytes;
    int copying;               /* Memcpy of what is not pinned returned, and its last bytes may still be on their way to the device */
    int held;                  /* what is on the stream has not been done yet: events are not ready */
    void (*late)(void);        /* what the last launch does when it is done; until then its stream alone is held; NULL: nothing */
    int late_looks;            /* at events behind it until then; 0: any number */
    cudaStream_t launched_on;
    uint32_t *abort_word;      /* of the last launch */
    uint32_t aborted;          /* how the kernel ends, mgv__kernel_status.aborted */
    enum cudaStreamCaptureStatus capture; /* in the global mode */
    int captures_another;      /* of a stream that no call is given: theirs do at once what they are told */
    enum cudaStreamCaptureMode mode; /* of the thread */
    fake_graph *graph;         /* that is being captured, or NULL */
    fake_block blocks[FAKE_MAX_BLOCKS];
    int events[FAKE_EVENTS];   /* 1: made and not destroyed */
    cudaStream_t recorded_on[FAKE_EVENTS];
    int streams[FAKE_STREAMS]; /* as events */
    int libraries;
    uint32_t launches;
    uint32_t fail_launch;      /* this launch fails, from 1; 0: none */
    uint64_t to_host;          /* bytes that were copied from the device */
    int unwatched;             /* launches behind which nothing was recorded or waited for */
    unsigned int grid;         /* blocks of the last launch */
    void (*kernel)(const void *arguments); /* what a launch does */
    fake_other others[FAKE_OTHERS];
} fake_cuda;

static fake_cuda fake;

static int fake_fails_now(const char *name) {
    fake.calls++;
    if (fake.fail_name ? strcmp(name, fake.fail_name) != 0 : fake.fail_at == 0 ||
        (fake.fail_from ? fake.calls < fake.fail_at : fake.calls != fake.fail_at)) return 0;
    fake.failed = name;
    return 1;
}
#define FAKE_CALL(name) \
    do { \
        if (fake_fails_now("cuda" name)) return fake.fail_code; \
    } while (0)

/* The block that holds [memory, memory + bytes), or NULL. */
static inline fake_block *fake_find(const void *memory, size_t bytes) {
    const uint8_t *p = (const uint8_t *)memory;
    int i;
    for (i = 0; i < FAKE_MAX_BLOCKS; i++) {
        fake_block *b = &fake.blocks[i];
        if (b->kind && p >= b->memory && bytes <= b->bytes && (size_t)(p - b->memory) <= b->bytes - bytes) return b;
    }
    return NULL;
}
static inline cudaError_t fake_allocate(void **memory, size_t bytes, fake_kind kind) {
    int i;
    for (i = 0; i < FAKE_MAX_BLOCKS && fake.blocks[i].kind; i++) continue;
    assert_true(i < FAKE_MAX_BLOCKS);
    if (fake.most_bytes && bytes > fake.most_bytes) return cudaErrorMemoryAllocation;
    if (posix_memalign(memory, 512, bytes) != 0) return cudaErrorMemoryAllocation;
    memset(*memory, 0xA5, bytes);
    fake.blocks[i].kind = kind;
    fake.blocks[i].memory = (uint8_t *)*memory;
    fake.blocks[i].bytes = bytes;
    return cudaSuccess;
}
static inline cudaError_t fake_release(void *memory, fake_kind kind) {
    fake_block *b = fake_find(memory, 1); /* where another one ends this one may begin */
    assert_true(b && b->kind == kind && b->memory == memory);
    free(memory);
    memset(b, 0, sizeof *b);
    return cudaSuccess;
}
/* Everything that is allocated, made or loaded and not given back. */
static inline int fake_alive(void) {
    int i, alive = fake.libraries;
    for (i = 0; i < FAKE_MAX_BLOCKS; i++) alive += fake.blocks[i].kind != 0;
    for (i = 0; i < FAKE_EVENTS; i++) alive += fake.events[i];
    for (i = 0; i < FAKE_STREAMS; i++) alive += fake.streams[i];
    return alive;
}

/* The launch that was held is done. */
static inline void fake_end_late(void) {
    void (*const late)(void) = fake.late;
    fake.late = NULL;
    fake.held = 0;
    late();
}

/* A call that a capture forbids to threads that have not said that they know better. */
static inline int fake_ends_the_capture(void) {
    if (fake.capture == cudaStreamCaptureStatusNone || fake.mode == cudaStreamCaptureModeRelaxed) return 0;
    fake.capture = cudaStreamCaptureStatusInvalidated;
    return 1;
}

/* A call that the legacy default stream has a part in, which waits for all others: a capture forbids it in any mode. */
static inline int fake_uses_the_default_stream(cudaStream_t stream) {
    if (stream || fake.capture == cudaStreamCaptureStatusNone) return 0;
    fake.capture = cudaStreamCaptureStatusInvalidated;
    return 1;
}

static const char *fake_GetErrorString(cudaError_t code) { return code == cudaSuccess ? "no error" : "planted"; }
static cudaError_t fake_DriverGetVersion(int *version) { FAKE_CALL("DriverGetVersion"); *version = fake.driver; return cudaSuccess; }
static cudaError_t fake_RuntimeGetVersion(int *version) { FAKE_CALL("RuntimeGetVersion"); *version = fake.runtime; return cudaSuccess; }
static cudaError_t fake_GetDeviceCount(int *count) {
    FAKE_CALL("GetDeviceCount");
    *count = fake.devices;
    return fake.devices ? cudaSuccess : cudaErrorNoDevice;
}
static cudaError_t fake_GetDevice(int *device) { FAKE_CALL("GetDevice"); *device = fake.device; return cudaSuccess; }
static cudaError_t fake_SetDevice(int device) {
    FAKE_CALL("SetDevice");
    if (device < 0 || device >= fake.devices) return cudaErrorInvalidDevice;
    fake.device = device;
    return cudaSuccess;
}
static cudaError_t fake_DeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    FAKE_CALL("DeviceGetAttribute");
    if (device < 0 || device >= fake.devices) return cudaErrorInvalidDevice;
    *value = attribute == cudaDevAttrComputeCapabilityMajor           ? fake.major
             : attribute == cudaDevAttrComputeCapabilityMinor         ? fake.minor
             : attribute == cudaDevAttrMultiProcessorCount            ? fake.multiprocessors
             : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin   ? fake.shared
             : attribute == cudaDevAttrCooperativeLaunch              ? fake.cooperative
                                                                      : -1;
    return *value < 0 ? cudaErrorInvalidValue : cudaSuccess;
}
static cudaError_t fake_Malloc(void **memory, size_t bytes) {
    FAKE_CALL("Malloc");
    return fake_ends_the_capture() ? cudaErrorStreamCaptureUnsupported : fake_allocate(memory, bytes, FAKE_DEVICE_MEMORY);
}
static cudaError_t fake_MallocHost(void **memory, size_t bytes) {
    FAKE_CALL("MallocHost");
    return fake_ends_the_capture() ? cudaErrorStreamCaptureUnsupported : fake_allocate(memory, bytes, FAKE_PINNED_MEMORY);
}
static cudaError_t fake_Free(void *memory) {
    return fake_ends_the_capture() ? cudaErrorStreamCaptureUnsupported : fake_release(memory, FAKE_DEVICE_MEMORY);
}
static cudaError_t fake_FreeHost(void *memory) {
    return fake_ends_the_capture() ? cudaErrorStreamCaptureUnsupported : fake_release(memory, FAKE_PINNED_MEMORY);
}

/* How the capture of a stream stands. Callers capture their own: those that the library has made are not captured. */
static inline enum cudaStreamCaptureStatus fake_capture_of(cudaStream_t stream) {
    int i;
    for (i = 0; i < FAKE_STREAMS; i++)
        if (stream == (cudaStream_t)(void *)&fake.streams[i]) return cudaStreamCaptureStatusNone;
    return fake.captures_another ? cudaStreamCaptureStatusNone : fake.capture;
}
/* The next node of the graph that is being captured from a stream; NULL: none is, and things are done at once. */
static inline fake_node *fake_node_of(int kind, cudaStream_t stream) {
    fake_node *node;
    if (fake_capture_of(stream) != cudaStreamCaptureStatusActive) return NULL;
    assert_true(fake.graph && fake.graph->count < FAKE_NODES);
    node = &fake.graph->nodes[fake.graph->count++];
    memset(node, 0, sizeof *node);
    memcpy(&node->kind, &kind, sizeof kind);
    return node;
}
/* Each end of a copy must be where the kind of copy says. */
static inline void fake_copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    const fake_block *target = fake_find(to, bytes), *source = fake_find(from, bytes);
    const int to_device = target && target->kind == FAKE_DEVICE_MEMORY;
    const int from_device = (source && source->kind == FAKE_DEVICE_MEMORY) || from == (const void *)fake.description ||
                            from == (const void *)fake.others[0].description || from == (const void *)fake.others[1].description;
    if (kind == cudaMemcpyHostToDevice) assert_true(to_device && !from_device);
    if (kind == cudaMemcpyDeviceToHost) assert_true(!to_device && from_device);
    if (kind == cudaMemcpyDeviceToDevice) assert_true(to_device && from_device);
    if (from_device && !to_device) fake.to_host += bytes;
    memcpy(to, from, bytes);
}
static cudaError_t fake_Memcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    FAKE_CALL("Memcpy");
    if (fake_uses_the_default_stream(NULL)) return cudaErrorStreamCaptureImplicit;
    fake_copy(to, from, bytes, kind);
    if (kind == cudaMemcpyHostToDevice && !fake_find(from, bytes)) fake.copying = 1;
    return cudaSuccess;
}
static cudaError_t fake_MemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    fake_node *node;
    FAKE_CALL("MemcpyAsync");
    if (fake.captures_another && fake_uses_the_default_stream(stream)) return cudaErrorStreamCaptureImplicit;
    node = fake_node_of(FAKE_COPY, stream);
    if (!node) fake_copy(to, from, bytes, kind);
    else {
        node->to = to;
        node->from = from;
        node->bytes = bytes;
    }
    return cudaSuccess;
}
static inline cudaError_t fake_set(void *to, int byte, size_t bytes) {
    const fake_block *target = fake_find(to, bytes);
    assert_true(target && target->kind == FAKE_DEVICE_MEMORY);
    memset(to, byte, bytes);
    return cudaSuccess;
}
static cudaError_t fake_Memset(void *to, int byte, size_t bytes) {
    FAKE_CALL("Memset");
    return fake_uses_the_default_stream(NULL) ? cudaErrorStreamCaptureImplicit : fake_set(to, byte, bytes);
}
static cudaError_t fake_MemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream) {
    fake_node *node;
    FAKE_CALL("MemsetAsync");
    if (fake.captures_another && fake_uses_the_default_stream(stream)) return cudaErrorStreamCaptureImplicit;
    node = fake_node_of(FAKE_SET, stream);
    if (!node) return fake_set(to, byte, bytes);
    node->to = to;
    node->byte = byte;
    node->bytes = bytes;
    return cudaSuccess;
}
static cudaError_t fake_EventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    int i;
    FAKE_CALL("EventCreateWithFlags");
    assert_int_equal(flags, cudaEventDisableTiming);
    for (i = 0; i < FAKE_EVENTS && fake.events[i]; i++) continue;
    assert_true(i < FAKE_EVENTS);
    fake.events[i] = 1;
    *event = (cudaEvent_t)(void *)&fake.events[i];
    return cudaSuccess;
}
static cudaError_t fake_EventDestroy(cudaEvent_t event) {
    int *made = (int *)(void *)event;
    assert_int_equal(*made, 1);
    *made = 0;
    return cudaSuccess;
}
static cudaError_t fake_EventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
    FAKE_CALL("EventRecordWithFlags");
    assert_int_equal(*(int *)(void *)event, 1);
    if (event == fake.fail_record) return fake.fail_code;
    fake.recorded_on[(int *)(void *)event - fake.events] = stream;
    assert_int_equal(flags, fake_node_of(FAKE_RECORD, stream) ? cudaEventRecordExternal : cudaEventRecordDefault);
    fake.unwatched = 0;
    return cudaSuccess;
}
static cudaError_t fake_PointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory) {
    const fake_block *b = fake_find(memory, 1);
    FAKE_CALL("PointerGetAttributes");
    memset(attributes, 0, sizeof *attributes);
    attributes->devicePointer = b ? (void *)(uintptr_t)memory : NULL;
    attributes->type = !b ? cudaMemoryTypeUnregistered : b->kind == FAKE_DEVICE_MEMORY ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    return cudaSuccess;
}
static cudaError_t fake_EventQuery(cudaEvent_t event) {
    FAKE_CALL("EventQuery");
    assert_int_equal(*(int *)(void *)event, 1);
    if (fake_ends_the_capture()) return cudaErrorStreamCaptureUnsupported;
    if (fake.late && fake.recorded_on[(int *)(void *)event - fake.events] != fake.launched_on) return cudaSuccess;
    if (fake.late && fake.late_looks && --fake.late_looks == 0) fake_end_late();
    return fake.held ? cudaErrorNotReady : cudaSuccess;
}
static cudaError_t fake_StreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    int i;
    FAKE_CALL("StreamCreateWithFlags");
    assert_int_equal(flags, cudaStreamNonBlocking); /* it is to wait for no other */
    for (i = 0; i < FAKE_STREAMS && fake.streams[i]; i++) continue;
    assert_true(i < FAKE_STREAMS);
    fake.streams[i] = 1;
    *stream = (cudaStream_t)(void *)&fake.streams[i];
    return cudaSuccess;
}
static cudaError_t fake_StreamDestroy(cudaStream_t stream) {
    int *made = (int *)(void *)stream;
    assert_int_equal(*made, 1);
    *made = 0;
    return cudaSuccess;
}
static cudaError_t fake_StreamSynchronize(cudaStream_t stream) {
    FAKE_CALL("StreamSynchronize");
    if (fake_uses_the_default_stream(stream)) return cudaErrorStreamCaptureImplicit;
    if (fake_ends_the_capture()) return cudaErrorStreamCaptureUnsupported;
    if (stream) assert_int_equal(*(int *)(void *)stream, 1);
    if (fake.late && stream == fake.launched_on) fake_end_late();
    fake.copying = 0;
    fake.unwatched = 0;
    return cudaSuccess;
}
static cudaError_t fake_StreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    FAKE_CALL("StreamIsCapturing");
    if (fake.captures_another && fake.capture != cudaStreamCaptureStatusNone && !stream)
        return cudaErrorStreamCaptureImplicit; /* the capture goes on */
    *status = fake_capture_of(stream);
    return cudaSuccess;
}
static cudaError_t fake_ThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    const enum cudaStreamCaptureMode before = fake.mode;
    FAKE_CALL("ThreadExchangeStreamCaptureMode");
    fake.mode = *mode;
    *mode = before;
    return cudaSuccess;
}
static cudaError_t fake_LibraryLoadData(cudaLibrary_t *library, const void *code, enum cudaJitOption *jit, void **jit_values,
                                        unsigned int jit_count,
                                        enum cudaLibraryOption *options, void **values, unsigned int count) {
    FAKE_CALL("LibraryLoadData");
    assert_non_null(code);
    assert_true(!jit && !jit_values && !jit_count && !options && !values && !count);
    fake.libraries++;
    *library = (cudaLibrary_t)(void *)&fake.libraries;
    return cudaSuccess;
}
static cudaError_t fake_LibraryUnload(cudaLibrary_t library) {
    assert_ptr_equal(library, &fake.libraries);
    fake.libraries--;
    return cudaSuccess;
}
static cudaError_t fake_LibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
    int i;
    FAKE_CALL("LibraryGetKernel");
    assert_ptr_equal(library, &fake.libraries);
    if (fake.missing && strcmp(name, fake.missing) == 0) return cudaErrorSymbolNotFound;
    *kernel = (cudaKernel_t)(void *)&fake.launches;
    for (i = 0; i < FAKE_OTHERS; i++) {
        fake_other *other = &fake.others[i];
        if (other->begins && strncmp(name, other->begins, strlen(other->begins)) == 0) *kernel = (cudaKernel_t)(void *)other;
    }
    return cudaSuccess;
}
static cudaError_t fake_LibraryGetGlobal(void **address, size_t *bytes, cudaLibrary_t library, const char *name) {
    int i;
    FAKE_CALL("LibraryGetGlobal");
    assert_ptr_equal(library, &fake.libraries);
    if (fake.missing && strcmp(name, fake.missing) == 0) return cudaErrorSymbolNotFound;
    *address = fake.description;
    *bytes = fake.description_bytes;
    for (i = 0; i < FAKE_OTHERS; i++) {
        fake_other *other = &fake.others[i];
        if (!other->begins || strcmp(name, other->described) != 0) continue;
        *address = other->description;
        *bytes = other->description_bytes;
    }
    return cudaSuccess;
}
/* The other kernel that this is, or NULL: the first one. */
static inline const fake_other *fake_find_other(const void *kernel) {
    int i;
    for (i = 0; i < FAKE_OTHERS; i++)
        if (kernel == (const void *)&fake.others[i]) return &fake.others[i];
    assert_ptr_equal(kernel, &fake.launches);
    return NULL;
}
static cudaError_t fake_FuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value) {
    FAKE_CALL("FuncSetAttribute");
    fake_find_other(kernel);
    assert_int_equal(attribute, cudaFuncAttributeMaxDynamicSharedMemorySize);
    assert_true(value <= fake.shared);
    return cudaSuccess;
}
static cudaError_t fake_OccupancyMaxActiveClusters(int *clusters, const void *kernel, const cudaLaunchConfig_t *config) {
    FAKE_CALL("OccupancyMaxActiveClusters");
    fake_find_other(kernel);
    *clusters = (int)((unsigned int)fake.multiprocessors / config->attrs[0].val.clusterDim.x);
    if (fake.broken_up) *clusters = fake.broken_up - 1;
    return cudaSuccess;
}
static cudaError_t fake_LaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments) {
    const fake_other *other;
    fake_node *node;
    FAKE_CALL("LaunchKernelExC");
    other = fake_find_other(kernel);
    assert_false(fake.copying);
    assert_true(config->gridDim.x <= (unsigned int)fake.multiprocessors);
    fake.grid = config->gridDim.x;
    fake.launched_on = config->stream;
    if (++fake.launches == fake.fail_launch) return fake.fail_code;
    fake.unwatched++;
    node = fake_node_of(FAKE_LAUNCH, config->stream);
    if (node) memcpy(&node->arguments, arguments[0], sizeof node->arguments);
    else if (other) other->kernel(arguments[0]);
    else if (fake.kernel) fake.kernel(arguments[0]);
    return cudaSuccess;
}
/* Runs a captured graph once. */
static inline void fake_replay(const fake_graph *graph) {
    int i;
    for (i = 0; i < graph->count; i++) {
        const fake_node *node = &graph->nodes[i];
        if (node->kind == FAKE_COPY) fake_copy(node->to, node->from, node->bytes, cudaMemcpyDefault);
        if (node->kind == FAKE_SET) fake_set(node->to, node->byte, node->bytes);
        if (node->kind == FAKE_LAUNCH) {
            assert_int_equal(node->arguments.next_count, 0); /* it comes at any time: the other counters are not its to clear */
            fake.kernel(&node->arguments);
        }
    }
}

static CUresult fake_encode_map(CUtensorMap *map) {
    memset(map, 0x11, sizeof *map);
    return fake.refuse_maps ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
static cudaError_t fake_GetDriverEntryPointByVersion(const char *name, void **function, unsigned int version, unsigned long long flags,
                                                     enum cudaDriverEntryPointQueryResult *found) {
    CUresult (*encode)(CUtensorMap *) = fake_encode_map; /* of its arguments it looks at the first */
    FAKE_CALL("GetDriverEntryPointByVersion");
    assert_string_equal(name, "cuTensorMapEncodeTiled");
    assert_true(version <= (unsigned int)fake.driver && flags == cudaEnableDefault);
    memcpy(function, &encode, sizeof encode);
    *found = fake.no_driver_function ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

#define FAKE_MEMBER(name, parameters) fake_##name,
static const mgv__cuda_calls fake_calls = {MGV__CUDA_CALLS(FAKE_MEMBER) fake_GetErrorString};
#undef FAKE_MEMBER

/* A machine with one H200 and kernels that fit the header. */
static inline void fake_reset(void) {
    assert_int_equal(fake_alive(), 0);
    memset(&fake, 0, sizeof fake);
    fake.fail_code = cudaErrorInvalidValue;
    fake.driver = fake.runtime = 13000;
    fake.devices = 1;
    fake.major = 9;
    fake.multiprocessors = 132;
    fake.shared = MGV__MAX_SHARED_BYTES;
    fake.cooperative = 1;
    fake.description[0] = MGV__KERNEL_VERSION;
    fake.description[1] = MGV__MAX_SHARED_BYTES;
    fake.description[2] = sizeof(mgv__kernel_arguments);
    fake.description[3] = MGV__KERNEL_THREADS;
    fake.description[4] = MGV__MAX_SHARED_BYTES;
    fake.description_bytes = sizeof fake.description;
}

#endif
