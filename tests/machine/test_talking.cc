/* A Qwen3-VL whole on the machine model: a picture's rows go from the tower's kernel to the prompt's without leaving the card, DeepStack's
   are added behind the first layers, ids are chosen behind it. Beside the CPU backend. Speaks TAP. */
#define MACHINE_TOWER
#include "language.h"

#include <memory>

namespace {

enum { SIDE = 256, MOST_TOKENS = 128 };

struct Picture {
    uint32_t width, height;
};
struct Seen {
    mgv_picture picture;
    float *rows = nullptr; /* on the card, or */
    std::vector<float> host;
};

std::vector<uint8_t> pixels_of(const Picture &p) {
    std::vector<uint8_t> pixels((size_t)p.width * p.height * 3);
    for (size_t i = 0; i < pixels.size(); i++) pixels[i] = (uint8_t)((i * 2654435761u + p.width * 40503u) >> 13);
    return pixels;
}

std::string said; /* why the CPU does something */
void hear(void *, int32_t, const char *message) { said = message; }

mgv_engine *open_engine(const mgv_model *model, mgv_backend backend) {
    mgv_engine_desc desc;
    mgv_error error;
    mgv_engine *engine = nullptr;
    memset(&desc, 0, sizeof desc);
    desc.backend = backend;
    desc.kernels = "the model has them";
    desc.max_width = desc.max_height = SIDE;
    desc.max_tokens = MOST_TOKENS;
    desc.min_pixels = 1024;
    desc.logger.log = hear;
    if (mgv_engine_create(&engine, model, &desc, &error) != MGV_OK) ok(false, "the engine", error.message);
    if (engine && engine->gpu) name_tower(engine->gpu->cuda);
    return engine;
}
mgv_session *open_texts(mgv_engine *engine, uint32_t capacity, uint32_t block) {
    mgv_session_desc desc;
    mgv_error error;
    mgv_session *session = nullptr;
    memset(&desc, 0, sizeof desc);
    desc.capacity = capacity;
    desc.block = block;
    if (mgv_session_create(&session, engine, &desc, &error) != MGV_OK) ok(false, "the session", error.message);
    if (session && session->gpu) name_parts(engine->decoder, *session->gpu, capacity);
    return session;
}

/* The rows of a picture, on the card where the engine is there. */
std::unique_ptr<Seen> see(mgv_engine *engine, const Picture &picture) {
    std::unique_ptr<Seen> seen(new Seen);
    const std::vector<uint8_t> pixels = pixels_of(picture);
    uint64_t floats = 0;
    mgv_image image;
    mgv_error error;
    memset((void *)&image, 0, sizeof image);
    image.pixels = pixels.data();
    image.width = picture.width;
    image.height = picture.height;
    mgv_picture_encode(engine, &image, nullptr, 0, &floats, &seen->picture, &error);
    const bool on_card = mgv_engine_backend(engine) == MGV_BACKEND_CUDA;
    if (on_card) cudaMalloc((void **)&seen->rows, floats * 4);
    else seen->host.resize(floats);
    if (mgv_picture_encode(engine, &image, on_card ? seen->rows : seen->host.data(), floats, &floats, &seen->picture, &error) != MGV_OK)
        ok(false, "a picture is encoded", error.message);
    arithmetic_runs += on_card;
    if (on_card && !machine::runtime.last.reports.empty()) ok(false, "and nothing is to report", machine::runtime.last.text());
    if (on_card) seen->host.assign(seen->rows, seen->rows + floats);
    return seen;
}

/* -1 where a picture stands, else so many ids of text. */
struct Text {
    const char *name;
    std::vector<int> parts;
};
std::vector<uint32_t> ids_of(const Shape &shape, const Text &text, const std::vector<std::unique_ptr<Seen>> &pictures) {
    std::vector<uint32_t> ids;
    size_t next = 0;
    for (int part : text.parts) {
        if (part < 0) ids.insert(ids.end(), pictures[next++]->picture.grid.merged_tokens, shape.vocabulary - 3);
        else for (uint32_t id : rule_ids((uint32_t)part, shape.vocabulary - 3, (uint32_t)ids.size())) ids.push_back(id);
    }
    return ids;
}
void append(mgv_session *session, const std::vector<uint32_t> &ids, const std::vector<std::unique_ptr<Seen>> &pictures) {
    std::vector<mgv_picture> shown;
    for (const auto &picture : pictures) shown.push_back(picture->picture);
    mgv_append_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.ids = ids.data();
    desc.id_count = ids.size();
    desc.pictures = shown.data();
    desc.picture_count = (uint32_t)shown.size();
    if (mgv_session_append_blocking(session, &desc, &error) != MGV_OK) ok(false, "appended", error.message);
    if (session->gpu && !machine::runtime.last.reports.empty()) ok(false, "nothing to report", machine::runtime.last.text());
}
std::vector<float> logits_behind(mgv_session *session) {
    Session s;
    s.session = session;
    return logits_of(s);
}
std::vector<uint32_t> generate(mgv_session *session, uint32_t count) {
    std::vector<uint32_t> ids(count);
    mgv_generate_desc desc;
    mgv_error error;
    int32_t stopped = 0;
    uint32_t made = 0;
    memset(&desc, 0, sizeof desc);
    desc.ids = ids.data();
    desc.id_capacity = count;
    if (mgv_session_generate(session, &desc, &made, &stopped, &error) != MGV_OK || made != count) ok(false, "ids behind it", error.message);
    if (!machine::runtime.last.reports.empty()) ok(false, "nothing to report", machine::runtime.last.text());
    return ids;
}
uint32_t next_of(const mgv_session *session) {
    mgv_session_info info;
    mgv_session_get_info(session, &info);
    return info.next;
}

/* Texts with pictures anywhere in them: rows and logits as the CPU's, also behind ids that the card chooses; the same bits in blocks that
   cut pictures. Pictures' rows are never copied to the host, nor from there. */
void test_whole(const char *name, const Shape &shape, uint32_t ctas, const std::vector<Picture> &sizes, const std::vector<Text> &texts) {
    enum { BEHIND = 3 };
    mgv_model *model = open_model(shape);
    if (!model) return;
    make_card(ctas);
    machine::runtime.options = options_of(ctas, false);
    machine::runtime.options.hardware_sums = false;
    mgv_engine *gpu = open_engine(model, MGV_BACKEND_CUDA), *cpu = open_engine(model, MGV_BACKEND_CPU);
    if (!gpu || !cpu) return;
    ok(gpu->gpu != nullptr, std::string(name) + ": the tower runs on the card", said);
    if (!gpu->gpu) return;
    std::vector<std::unique_ptr<Seen>> mine, theirs;
    const uint64_t before = machine::runtime.to_host;
    double rows = 0;
    for (const Picture &size : sizes) {
        mine.push_back(see(gpu, size));
        theirs.push_back(see(cpu, size));
        rows = fmax(rows, relative_l2(mine.back()->host.data(), theirs.back()->host.data(), theirs.back()->host.size()));
    }
    ok(rows < 0.02 && machine::runtime.to_host == before,
       std::string(name) + ": rows as the CPU's, relative error " + std::to_string(rows) + ", none of them on the host");
    for (const Text &text : texts) {
        const std::vector<uint32_t> ids = ids_of(shape, text, mine);
        const uint32_t capacity = (uint32_t)ids.size() + BEHIND;
        std::vector<float> first, behind;
        std::vector<uint32_t> chosen;
        for (uint32_t block : {1024u, 23u}) {
            const char *const how = block < 100 ? "in blocks that cut pictures" : "at once";
            const std::string what = std::string(name) + ", " + text.name + ", " + how + ": ";
            mgv_session *session = open_texts(gpu, capacity, block);
            const uint64_t to = machine::runtime.to_host, from = machine::runtime.from_host;
            append(session, ids, mine);
            /* logits, nothing else; of each id itself, its picture's row, its turns, and what a launch of the head is told */
            const uint64_t told = (ids.size() + 1) * (8 + MGV__DECODE_HEAD_DIM * 4) + MGV__DECODE_IDS_BYTES;
            ok(machine::runtime.to_host - to == shape.vocabulary * 4 && machine::runtime.from_host - from <= told,
               what + "rows stay on the card");
            const std::vector<float> logits = logits_behind(session);
            const uint32_t next = next_of(session);
            const std::vector<uint32_t> made = generate(session, BEHIND);
            ok(next_of(session) == next + BEHIND, what + "positions go on behind the pictures");
            if (first.empty()) {
                first = logits;
                chosen = made;
                behind = logits_behind(session);
            }
            ok(logits == first && made == chosen && logits_behind(session) == behind, what + "the same bits");
            mgv_session_destroy(session);
        }
        mgv_session *session = open_texts(cpu, capacity, 0);
        append(session, ids, theirs);
        const std::vector<float> expected = logits_behind(session);
        const double at = relative_l2(first.data(), expected.data(), expected.size());
        mgv_error error;
        for (uint32_t id : chosen) mgv_session_step(session, id, &error);
        const std::vector<float> then = logits_behind(session);
        const double later = relative_l2(behind.data(), then.data(), then.size());
        ok(at < 0.025 && later < 0.025, std::string(name) + ", " + text.name + ": relative error " + std::to_string(at) +
           ", behind ids that are chosen " + std::to_string(later));
        mgv_session_destroy(session);
    }
    for (const auto &picture : mine) cudaFree(picture->rows);
    mgv_engine_destroy(gpu);
    mgv_engine_destroy(cpu);
    mgv_model_close(model);
}

/* Two sessions, each with a picture of its own, say together what each says alone. */
void test_two(const Shape &shape) {
    enum { COUNT = 3 };
    mgv_model *model = open_model(shape);
    if (!model) return;
    make_card(4);
    machine::runtime.options = options_of(3, false);
    machine::runtime.options.hardware_sums = false;
    mgv_engine *engine = open_engine(model, MGV_BACKEND_CUDA);
    if (!engine) return;
    mgv_session *sessions[2];
    std::vector<uint32_t> ids[2], alone[2], together[2];
    std::vector<float> logits[2];
    std::vector<std::unique_ptr<Seen>> pictures[2];
    mgv_generate_desc descs[2];
    uint32_t made[2];
    int32_t stopped[2];
    mgv_error error;
    memset(descs, 0, sizeof descs);
    for (uint32_t i = 0; i < 2; i++) {
        pictures[i].push_back(see(engine, {i ? 96u : 64u, i ? 64u : 160u}));
        ids[i] = ids_of(shape, {"", {2 + (int)i, -1, 3}}, pictures[i]);
        sessions[i] = open_texts(engine, (uint32_t)ids[i].size() + COUNT + i, 0);
        append(sessions[i], ids[i], pictures[i]);
        together[i].resize(COUNT);
        descs[i].ids = together[i].data();
        descs[i].id_capacity = COUNT;
    }
    for (uint32_t i = 0; i < 2; i++) {
        alone[i] = generate(sessions[i], COUNT);
        logits[i] = logits_behind(sessions[i]);
        mgv_session_rollback(sessions[i], 0, &error);
        append(sessions[i], ids[i], pictures[i]);
    }
    ok(mgv_sessions_generate(sessions, descs, 2, made, stopped, &error) == MGV_OK, "two sessions together", error.message);
    ok(machine::runtime.last.reports.empty(), "nothing to report", machine::runtime.last.text());
    for (uint32_t i = 0; i < 2; i++)
        ok(together[i] == alone[i] && logits_behind(sessions[i]) == logits[i],
           "session " + std::to_string(i) + " with its picture as alone");
    ok(logits[0] != logits[1], "and they are not the same");
    for (uint32_t i = 0; i < 2; i++) {
        mgv_session_destroy(sessions[i]);
        cudaFree(pictures[i][0]->rows);
    }
    mgv_engine_destroy(engine);
    mgv_model_close(model);
}

} // namespace

int main(int count, char **arguments) {
    const std::string only = count > 1 ? arguments[1] : "";
    const std::vector<Picture> two = {{160, 96}, {64, 128}};
    const std::vector<Text> texts = {{"pictures at the begin and at the end", {-1, 4, -1}}, {"pictures side by side", {5, -1, -1, 2}}};
    const Shape small = {4, 128, 96, 4, 2, 131, true, true, 0, 3};
    if (only.empty() || only == "small") test_whole("2 heads a key", small, 4, two, texts);
    if (only.empty() || only == "two") test_two(small);
    return finish("talking");
}
