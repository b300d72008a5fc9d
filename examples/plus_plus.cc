// The header in a C++11 program: handles in unique_ptr, embeddings in vector.
//
//     plus_plus MODEL
#include <cstdio>
#include <memory>
#include <vector>
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

struct CloseModel {
    void operator()(mgv_model *model) const { mgv_model_close(model); }
};
struct DestroyEngine {
    void operator()(mgv_engine *engine) const { mgv_engine_destroy(engine); }
};

int main(int argc, char **argv) {
    mgv_error error = mgv_error();
    if (argc != 2) {
        std::fprintf(stderr, "usage: plus_plus MODEL\n");
        return 1;
    }

    mgv_model_desc model_desc = mgv_model_desc();
    model_desc.path = argv[1];
    mgv_model *opened = nullptr;
    mgv_engine *made = nullptr;
    if (mgv_model_open(&opened, &model_desc, &error) != MGV_OK) {
        std::fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    std::unique_ptr<mgv_model, CloseModel> model(opened);
    if (mgv_engine_create(&made, model.get(), nullptr, &error) != MGV_OK) {
        std::fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    std::unique_ptr<mgv_engine, DestroyEngine> engine(made);

    // A picture from nowhere: a square of red fading into blue.
    std::vector<unsigned char> pixels;
    for (int y = 0; y < 100; y++)
        for (int x = 0; x < 100; x++) {
            pixels.push_back(static_cast<unsigned char>(255 - 2 * x));
            pixels.push_back(0);
            pixels.push_back(static_cast<unsigned char>(2 * x));
        }
    mgv_image image = mgv_image();
    image.pixels = pixels.data();
    image.bytes = pixels.size();
    image.width = image.height = 100;

    mgv_output output = mgv_output();
    mgv_shape shape;
    output.kind = MGV_OUTPUT_TOKENS;
    if (mgv_engine_shape(engine.get(), &image, 1, &output, &shape, &error) != MGV_OK) {
        std::fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    std::vector<float> tokens(static_cast<size_t>(shape.rows * shape.columns));
    output.data = tokens.data();
    output.capacity = tokens.size();
    mgv_encode_desc encode = mgv_encode_desc();
    encode.images = &image;
    encode.image_count = 1;
    encode.outputs = &output;
    encode.output_count = 1;
    if (mgv_encode_blocking(engine.get(), &encode, &error) != MGV_OK) {
        std::fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    std::printf("%u tokens of %u floats; the first is %g\n", static_cast<unsigned>(shape.rows), static_cast<unsigned>(shape.columns),
                static_cast<double>(tokens[0]));
    return 0;
}
