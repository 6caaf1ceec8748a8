/* PLAN_EACH (M, context, (a, b, c)) expands to M (context, a) M (context, b) M (context, c), and of
 * () to nothing: for lists of at most 15 items inside the rows of an X-macro. PLAN_SPLIT
 * (M, context, (x, y)) expands to M (context, x, y). M may not use PLAN_EACH. */
#pragma once

#define PLAN_EACH(M, context, list) PLAN_EACH_OF (M, context PLAN_EACH_OPEN list)
#define PLAN_SPLIT(M, context, item) PLAN_SPLIT_OF (M, context, PLAN_SPLIT_OPEN item)

/* A list without its parentheses counts as several arguments only in the next macro. */
#define PLAN_EACH_OPEN(...) , ##__VA_ARGS__
#define PLAN_SPLIT_OPEN(...) __VA_ARGS__
#define PLAN_SPLIT_OF(M, ...) M (__VA_ARGS__)

/* clang-format off */
#define PLAN_EACH_OF(...) \
  PLAN_EACH_PICK (__VA_ARGS__, PLAN_EACH_15, PLAN_EACH_14, PLAN_EACH_13, PLAN_EACH_12, \
                  PLAN_EACH_11, PLAN_EACH_10, PLAN_EACH_9, PLAN_EACH_8, PLAN_EACH_7, PLAN_EACH_6, \
                  PLAN_EACH_5, PLAN_EACH_4, PLAN_EACH_3, PLAN_EACH_2, PLAN_EACH_1, PLAN_EACH_0, 0) \
    (__VA_ARGS__)
#define PLAN_EACH_PICK(M, context, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, picked, ...) picked
#define PLAN_EACH_0(M, c)
#define PLAN_EACH_1(M, c, a) M (c, a)
#define PLAN_EACH_2(M, c, a, ...) M (c, a) PLAN_EACH_1 (M, c, __VA_ARGS__)
#define PLAN_EACH_3(M, c, a, ...) M (c, a) PLAN_EACH_2 (M, c, __VA_ARGS__)
#define PLAN_EACH_4(M, c, a, ...) M (c, a) PLAN_EACH_3 (M, c, __VA_ARGS__)
#define PLAN_EACH_5(M, c, a, ...) M (c, a) PLAN_EACH_4 (M, c, __VA_ARGS__)
#define PLAN_EACH_6(M, c, a, ...) M (c, a) PLAN_EACH_5 (M, c, __VA_ARGS__)
#define PLAN_EACH_7(M, c, a, ...) M (c, a) PLAN_EACH_6 (M, c, __VA_ARGS__)
#define PLAN_EACH_8(M, c, a, ...) M (c, a) PLAN_EACH_7 (M, c, __VA_ARGS__)
#define PLAN_EACH_9(M, c, a, ...) M (c, a) PLAN_EACH_8 (M, c, __VA_ARGS__)
#define PLAN_EACH_10(M, c, a, ...) M (c, a) PLAN_EACH_9 (M, c, __VA_ARGS__)
#define PLAN_EACH_11(M, c, a, ...) M (c, a) PLAN_EACH_10 (M, c, __VA_ARGS__)
#define PLAN_EACH_12(M, c, a, ...) M (c, a) PLAN_EACH_11 (M, c, __VA_ARGS__)
#define PLAN_EACH_13(M, c, a, ...) M (c, a) PLAN_EACH_12 (M, c, __VA_ARGS__)
#define PLAN_EACH_14(M, c, a, ...) M (c, a) PLAN_EACH_13 (M, c, __VA_ARGS__)
#define PLAN_EACH_15(M, c, a, ...) M (c, a) PLAN_EACH_14 (M, c, __VA_ARGS__)
/* clang-format on */
