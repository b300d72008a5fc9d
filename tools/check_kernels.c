/* What `make dist` asks of the kernels before it packs them. usage: check_kernels FATBIN MODEL_DIRECTORY
   The fatbin is whole, megavit_kernels.h has its bytes, and a GPU, where there is one, loads them and takes them for those of this
   megavit.h. Prints what was found, in one line; exit code 1 if the kernels are not to be given away. */
#define MEGAVIT_KERNELS_HEADER "megavit_kernels.h"
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#ifdef MEGAVIT_NO_CUDA
#include MEGAVIT_KERNELS_HEADER
#endif
#include <stdio.h>

enum { CONTAINER_BYTES = 16 };

static int bad(const char *why) {
    printf("%s\n", why);
    return 1;
}

/* The container's head: magic, version, bytes of the head, bytes of what follows it (fatbinary.h of the toolkit). */
static int is_whole(const unsigned char *bytes, size_t count) {
    uint64_t follows = 0;
    int i;
    if (count < CONTAINER_BYTES || bytes[0] != 0x50 || bytes[1] != 0xED || bytes[2] != 0x55 || bytes[3] != 0xBA) return 0;
    for (i = 7; i >= 0; i--) follows = follows << 8 | bytes[8 + i];
    return follows == count - CONTAINER_BYTES;
}

/* What a GPU says to them; 0 if it takes them, or if there is none. */
static int load(const char *directory) {
    mgv_model_desc model_desc = {0};
    mgv_engine_desc desc = {0};
    mgv_model *model;
    mgv_engine *engine;
    mgv_error error;
    mgv_result result;
    model_desc.path = directory;
    desc.backend = MGV_BACKEND_CUDA;
    if (mgv_model_open(&model, &model_desc, &error) != MGV_OK) return bad(error.message);
    result = mgv_engine_create(&engine, model, &desc, &error);
    if (result == MGV_OK) mgv_engine_destroy(engine);
    mgv_model_close(model);
    if (result == MGV_OK) printf("whole, and loaded by the GPU of this machine\n");
    else if (result == MGV_ERROR_NO_DEVICE || result == MGV_ERROR_UNSUPPORTED) printf("whole; not loaded: %s\n", error.message);
    else return bad(error.message);
    return 0;
}

int main(int argc, char **argv) {
    static unsigned char bytes[sizeof mgv_kernels + 1];
    size_t count;
    FILE *file;
    if (argc != 3 || (file = fopen(argv[1], "rb")) == NULL) return bad("usage: check_kernels FATBIN MODEL_DIRECTORY");
    count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    if (!is_whole(bytes, count)) return bad("the fatbin is cut off, or no fatbin");
    if (count > sizeof mgv_kernels || memcmp(bytes, mgv_kernels, count) != 0) return bad("megavit_kernels.h has other bytes than the fatbin");
    return load(argv[2]);
}
