/* See pipeline.h. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "tools/pipeline.h"

/* What is known of an item that has a slot. */
typedef struct place {
    size_t item;
    int done;
    int passed[PIPELINE_BUDGETS]; /* it waits for this budget no more */
} place;

struct pipeline {
    pipeline_desc desc;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t *threads;
    uint32_t thread_count;
    place *places;         /* [slots] */
    uint32_t *order;       /* [slots]: the slot of item i is order[i % slots], from when it is begun until it is taken */
    uint32_t *free_slots;  /* a stack */
    uint32_t free_count;
    size_t begun, taken;   /* items, so many from the first on */
    size_t turn[PIPELINE_BUDGETS]; /* the first item that has not passed */
    uint64_t used[PIPELINE_BUDGETS];
    int stopping;
};

static void pass(pipeline *p, place *at, int budget) {
    at->passed[budget] = 1;
    while (p->turn[budget] < p->begun && p->places[p->order[p->turn[budget] % p->desc.slots]].passed[budget]) p->turn[budget]++;
}

/* Begins an item: gives it a slot. 0: there is nothing left to do. */
static int begin(pipeline *p, size_t *item, uint32_t *slot) {
    place *at;
    while (!p->stopping && p->begun < p->desc.count && p->free_count == 0) pthread_cond_wait(&p->changed, &p->lock);
    if (p->stopping || p->begun == p->desc.count) return 0;
    *item = p->begun++;
    *slot = p->free_slots[--p->free_count];
    p->order[*item % p->desc.slots] = *slot;
    at = &p->places[*slot];
    memset(at, 0, sizeof *at);
    at->item = *item;
    return 1;
}

static void *run(void *argument) {
    pipeline *p = argument;
    uint32_t slot;
    size_t item;
    pthread_mutex_lock(&p->lock);
    while (begin(p, &item, &slot)) {
        pthread_mutex_unlock(&p->lock);
        p->desc.work(p->desc.user, p, item, slot);
        pthread_mutex_lock(&p->lock);
        p->places[slot].done = 1;
        for (int i = 0; i < PIPELINE_BUDGETS; i++) pass(p, &p->places[slot], i);
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void free_memory(pipeline *p) {
    free(p->threads);
    free(p->places);
    free(p->order);
    free(p->free_slots);
    free(p);
}

pipeline *pipeline_start(const pipeline_desc *desc) {
    pipeline *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->desc = *desc;
    p->threads = calloc(desc->threads, sizeof *p->threads);
    p->places = calloc(desc->slots, sizeof *p->places);
    p->order = calloc(desc->slots, sizeof *p->order);
    p->free_slots = calloc(desc->slots, sizeof *p->free_slots);
    if (!p->threads || !p->places || !p->order || !p->free_slots) {
        free_memory(p);
        return NULL;
    }
    for (uint32_t i = 0; i < desc->slots; i++) p->free_slots[p->free_count++] = desc->slots - 1 - i;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    while (p->thread_count < desc->threads && pthread_create(&p->threads[p->thread_count], NULL, run, p) == 0) p->thread_count++;
    if (p->thread_count > 0) return p; /* fewer do the same */
    pipeline_stop(p);
    return NULL;
}

int pipeline_take(pipeline *p, size_t *item, uint32_t *slot) {
    int there;
    pthread_mutex_lock(&p->lock);
    there = p->taken < p->desc.count;
    if (there) {
        while (p->begun == p->taken || !p->places[p->order[p->taken % p->desc.slots]].done) pthread_cond_wait(&p->changed, &p->lock);
        *item = p->taken;
        *slot = p->order[p->taken % p->desc.slots];
        p->taken++;
    }
    pthread_mutex_unlock(&p->lock);
    return there;
}

void pipeline_give_back(pipeline *p, uint32_t slot) {
    pthread_mutex_lock(&p->lock);
    p->free_slots[p->free_count++] = slot;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void pipeline_stop(pipeline *p) {
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stopping = 1;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->thread_count; i++) pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free_memory(p);
}

int pipeline_reserve(pipeline *p, uint32_t slot, int budget, uint64_t bytes) {
    int granted = 0;
    place *at;
    pthread_mutex_lock(&p->lock);
    at = &p->places[slot];
    while (!p->stopping && (p->turn[budget] != at->item || p->used[budget] > p->desc.budgets[budget] || bytes > p->desc.budgets[budget] - p->used[budget]))
        pthread_cond_wait(&p->changed, &p->lock);
    if (!p->stopping) {
        granted = 1;
        p->used[budget] += bytes;
        pass(p, at, budget);
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return granted;
}

void pipeline_release(pipeline *p, int budget, uint64_t bytes) {
    pthread_mutex_lock(&p->lock);
    p->used[budget] -= bytes;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}
