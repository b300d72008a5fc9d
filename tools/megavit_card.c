/* megavit bench, the card's side: pictures and results in device memory, events around an encode, energy and names from NVML.
   NVML comes with the driver and is loaded when it is there: nothing links against it. */
#include "tools/cli.h"
#if defined(MEGAVIT_CUDA) && !defined(MEGAVIT_NO_CUDA)
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- NVML: nvml.h's functions by name, their types written out ---- */

typedef struct nvml {
    void *library, *device;
    int (*energy)(void *device, unsigned long long *millijoules);
    int (*name)(void *device, char *name, unsigned int bytes);
    int (*driver)(char *version, unsigned int bytes);
} nvml;

/* The function of this name, or one that is 0. POSIX says that a pointer from dlsym can be a function's. */
static void find(void *library, const char *name, void *function) {
    void *address = library ? dlsym(library, name) : NULL;
    memcpy(function, &address, sizeof address);
}

static void nvml_open(nvml *n, int device) {
    int (*init)(void);
    int (*by_bus)(const char *bus, void **device);
    char bus[32];
    memset(n, 0, sizeof *n);
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    find(n->library, "nvmlInit_v2", &init);
    find(n->library, "nvmlDeviceGetHandleByPciBusId_v2", &by_bus);
    find(n->library, "nvmlDeviceGetTotalEnergyConsumption", &n->energy);
    find(n->library, "nvmlDeviceGetName", &n->name);
    find(n->library, "nvmlSystemGetDriverVersion", &n->driver);
    if (!init || !by_bus || init() != 0 || cudaDeviceGetPCIBusId(bus, sizeof bus, device) != cudaSuccess ||
        by_bus(bus, &n->device) != 0)
        n->device = NULL;
}

/* ---- the card ---- */

struct cli_card {
    cudaStream_t stream;
    cudaEvent_t start, end;
    unsigned char *pixels;
    float *rows;
    nvml nvml;
    int device, multiprocessors;
};

cli_card *cli_card_open(void) {
    cli_card *card = calloc(1, sizeof *card);
    if (card && cudaGetDevice(&card->device) == cudaSuccess && cudaStreamCreate(&card->stream) == cudaSuccess &&
        cudaEventCreate(&card->start) == cudaSuccess && cudaEventCreate(&card->end) == cudaSuccess &&
        cudaDeviceGetAttribute(&card->multiprocessors, cudaDevAttrMultiProcessorCount, card->device) == cudaSuccess) {
        nvml_open(&card->nvml, card->device);
        return card;
    }
    cli_card_close(card);
    return NULL;
}

void cli_card_close(cli_card *card) {
    if (!card) return;
    cli_card_release(card);
    if (card->start) cudaEventDestroy(card->start);
    if (card->end) cudaEventDestroy(card->end);
    if (card->stream) cudaStreamDestroy(card->stream);
    if (card->nvml.library) dlclose(card->nvml.library);
    free(card);
}

int cli_card_reserve(cli_card *card, const unsigned char *pixels, size_t pixel_bytes, size_t row_bytes) {
    return cudaMalloc((void **)&card->pixels, pixel_bytes) == cudaSuccess && cudaMalloc((void **)&card->rows, row_bytes) == cudaSuccess &&
           cudaMemcpy(card->pixels, pixels, pixel_bytes, cudaMemcpyHostToDevice) == cudaSuccess;
}
void cli_card_release(cli_card *card) {
    if (card->pixels) cudaFree(card->pixels);
    if (card->rows) cudaFree(card->rows);
    card->pixels = NULL;
    card->rows = NULL;
}
const unsigned char *cli_card_pixels(const cli_card *card) { return card->pixels; }
float *cli_card_rows(const cli_card *card) { return card->rows; }
void *cli_card_stream(const cli_card *card) { return card->stream; }

int cli_card_begin(cli_card *card) { return cudaEventRecord(card->start, card->stream) == cudaSuccess; }
int cli_card_end(cli_card *card, double *milliseconds) {
    float elapsed = 0;
    if (cudaEventRecord(card->end, card->stream) != cudaSuccess || cudaEventSynchronize(card->end) != cudaSuccess ||
        cudaEventElapsedTime(&elapsed, card->start, card->end) != cudaSuccess)
        return 0;
    *milliseconds = (double)elapsed;
    return 1;
}

double cli_card_joules(const cli_card *card) {
    unsigned long long millijoules = 0;
    if (!card->nvml.device || !card->nvml.energy || card->nvml.energy(card->nvml.device, &millijoules) != 0) return -1;
    return (double)millijoules * 1e-3;
}

double cli_card_peak_flops(const cli_card *card) { return 989.4e12 * card->multiprocessors / 132; }

void cli_card_name(const cli_card *card, char *text, size_t room) {
    char name[96] = "a GPU that NVML does not name", driver[80] = "unknown";
    if (card->nvml.device && card->nvml.name) card->nvml.name(card->nvml.device, name, sizeof name);
    if (card->nvml.device && card->nvml.driver) card->nvml.driver(driver, sizeof driver);
    snprintf(text, room, "%s, driver %s", name, driver);
}
#endif
