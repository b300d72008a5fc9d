/* A small SigLIP, CLIP, DINOv2, DINOv3 or toy on the machine model, through megavit.h's own CUDA backend. encode.cc */
#ifndef MACHINE_ENCODE_H
#define MACHINE_ENCODE_H

#include <memory>
#include <set>

#include "machine.h"

/* mgv_precision */
enum : uint32_t {
    PRECISION_QKV = 1, PRECISION_OUT = 2, PRECISION_FC1 = 4, PRECISION_FC2 = 8, PRECISION_MXFP8 = 15, PRECISION_MIXED = 5,
    PRECISION_BF16 = 16
};

struct MicroShape {
    uint32_t image_size, patch, hidden, intermediate, layers;
    uint32_t images, max_images, group_images, lanes, clusters, poll_limit;
    uint32_t regime; /* 1: throughput, 2: latency */
    bool rows = false; /* token and layer outputs too */
    uint32_t head_dim = 64;
    bool head = true; /* a pooling head; without one there are token and layer outputs only */
    uint32_t split = 0; /* K is shared out over the pair where it takes no more tiles; 0: as the plan has it */
    float sharpness = 1; /* of attention: its scores times as much */
    bool alike = false; /* all images are the same one */
    float contrast = 1; /* of the pixels around the middle grey */
    bool regroups = false; /* group_images is of the engine's largest batch; a smaller one is grouped as the plan likes */
    const char *family = "siglip"; /* or clip, dinov2, dinov3, toy, naflex, qwen2, qwen2.5, qwen3: their one row of each image stands for the pooling head's */
    uint32_t registers = 0; /* of dinov2 */
    uint32_t table_side = 0; /* of dinov2: the side of its positions, which the picture's are sampled from; 0: as many as there are patches */
    const char *activation = "gelu"; /* of dinov3 */
    bool gated = false; /* its MLP */
    uint32_t schedule_images = 0; /* arithmetic is that of so many images */
    const char *sizes = ""; /* where pictures may be of any: patches down and across, frames of each, as "3x5 1x1*4"; max_images is the most tokens */
    uint32_t seed = 0; /* of the pixels: picture i of a list is that of seed + i */
    uint32_t picture_side = 0; /* of dinov3: pictures of that side are resized, in floats as its own processor does; 0: they have their size */
    uint32_t precision = 0; /* mgv_precision, of both backends, */
    uint32_t twin = 0; /* or another one of the CPU's; 0: the same */
    uint32_t projection = 0; /* of clip: columns of its embeds; 0: it has none */
    uint32_t merged = 0, deepstack = 0; /* columns of merged tokens, and how many mergers there are before the last: of the toy with mergers */
    uint32_t shares = 0; /* of K, over clusters, where pictures may be of any size; 1: none; 0: as the plan has it */
    float probe = 1; /* of the pooling head: its scores times as much */
    float mean = 0; /* of rows behind the qwens' layers' or a pooling head's attention, roughly; without it they have next to none */
};
struct MicroRun {
    machine::Result machine;
    std::string verdict; /* what the engine says, when it does not say that all is well */
    double relative_error = 0; /* L2, against the CPU backend: the output's that is furthest off, */
    double rows_error = 0;     /* and of those that are not the pooling head's */
    double median_error = 0;   /* of a row alone: the median of the output's rows that is largest, of outputs with three rows at least */
    std::vector<float> outputs;
    bool alike = true; /* every output has the same bits for all images; they need not have them where these differ */
};
struct MicroEncoder;

MicroEncoder *micro_open(const MicroShape &shape, std::string *why);
void micro_close(MicroEncoder *encoder);
/* The abort word of a run that follows none. */
uint32_t *micro_abort_word(const MicroEncoder *encoder);
/* 1 + each counter in global memory, but for those that only keep buffers' counters apart. */
std::vector<uint32_t> micro_signals(const MicroEncoder *encoder);
std::string micro_plan(const MicroEncoder *encoder);
/* The one that the last run took. */
std::string micro_kernel(const MicroEncoder *encoder);
/* Adds the ways through the kernel that the last run took: "product 128 x 256". */
void micro_ways(const MicroEncoder *encoder, std::set<std::string> *ways);
/* Activations start uninitialised. lost_signal: 1 + the counter that one signal does not reach; 0: none is lost. follows: it counts in what
   the run before it, of all lanes, has zeroed. */
MicroRun micro_run(MicroEncoder *encoder, const machine::Options &options, uint32_t lost_signal, bool follows = false);
/* What mgv_validate says of the pictures, with something of the tables of a token that is wrong in every launch. */
enum class MicroFault { none, pixels, sample, place, range };
struct MicroValidation {
    std::string error;
    uint32_t compared = 0;
    std::set<std::string> wrong; /* labels of operations out of tolerance */
    struct Row {
        std::string label;
        uint64_t values, different;
    };
    std::vector<Row> rows; /* of those that were compared */
};
MicroValidation micro_validate(MicroEncoder *encoder, const machine::Options &options, MicroFault fault, uint32_t token);
/* The same pictures by an engine of the public API, from host memory into host memory. */
MicroRun micro_engine(MicroEncoder *encoder, const machine::Options &options);

#endif
