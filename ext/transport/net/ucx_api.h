/* SPDX-License-Identifier: Apache-2.0
 *
 * ucx_api.h - our declarations of the part of UCX's interface (UCP) that we use, so that the build needs no UCX header.
 *
 * The names are UCX's. This is version 1.13 of the interface. Later versions extend it: structures grow at their end,
 * and a mask tells which fields are set. A test compares with UCX's header.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef int8_t ucs_status_t;    /* in UCX a packed enumeration */
typedef void *ucs_status_ptr_t; /* NULL: done; a request; or a status from -1 to -100 */
typedef uint64_t ucp_tag_t;
typedef struct ucp_config ucp_config_t;
typedef struct ucp_context *ucp_context_h;
typedef struct ucp_worker *ucp_worker_h;
typedef struct ucp_ep *ucp_ep_h;
typedef struct ucp_address ucp_address_t;

enum {
    UCS_OK = 0,
    UCS_INPROGRESS = 1,
    UCS_ERR_NO_MEMORY = -4,
    UCS_ERR_MESSAGE_TRUNCATED = -9,
    UCS_ERR_CANCELED = -16,
    UCS_ERR_LAST = -100,
    UCS_THREAD_MODE_SERIALIZED = 1,
    UCS_MEMORY_TYPE_HOST = 0,
    UCP_FEATURE_TAG = 1,
    UCP_PARAM_FIELD_FEATURES = 1,
    UCP_PARAM_FIELD_TAG_SENDER_MASK = 1 << 4,
    UCP_PARAM_FIELD_ESTIMATED_NUM_EPS = 1 << 6,
    UCP_WORKER_PARAM_FIELD_THREAD_MODE = 1,
    UCP_EP_PARAM_FIELD_REMOTE_ADDRESS = 1,
    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE = 1 << 1,
    UCP_EP_PARAM_FIELD_ERR_HANDLER = 1 << 2,
    UCP_ERR_HANDLING_MODE_NONE = 0,
    UCP_ERR_HANDLING_MODE_PEER = 1,
    UCP_EP_CLOSE_FLAG_FORCE = 1,
    UCP_OP_ATTR_FIELD_CALLBACK = 1 << 1,
    UCP_OP_ATTR_FIELD_USER_DATA = 1 << 2,
    UCP_OP_ATTR_FIELD_FLAGS = 1 << 4,
    UCP_OP_ATTR_FIELD_MEMORY_TYPE = 1 << 6,
    UCP_OP_ATTR_FLAG_NO_IMM_CMPL = 1 << 16
};

typedef struct ucp_params {
    uint64_t field_mask, features;
    size_t request_size;
    void (*request_init)(void *), (*request_cleanup)(void *);
    uint64_t tag_sender_mask;
    int mt_workers_shared;
    size_t estimated_num_eps, estimated_num_ppn;
    const char *name;
} ucp_params_t;

typedef struct ucp_worker_params {
    uint64_t field_mask;
    int thread_mode;
    uint64_t cpu_mask[16];
    unsigned events;
    void *user_data;
    int event_fd;
    uint64_t flags;
    const char *name;
    size_t am_alignment;
    uint64_t client_id;
} ucp_worker_params_t;

typedef struct ucp_err_handler {
    void (*cb)(void *arg, ucp_ep_h, ucs_status_t);
    void *arg;
} ucp_err_handler_t;

typedef struct ucp_ep_params {
    uint64_t field_mask;
    const ucp_address_t *address;
    int err_mode;
    ucp_err_handler_t err_handler;
    void *user_data;
    unsigned flags;
    struct {
        const void *addr;
        unsigned addrlen;
    } sockaddr;
    void *conn_request;
    const char *name;
    struct {
        const void *addr;
        unsigned addrlen;
    } local_sockaddr;
} ucp_ep_params_t;

typedef struct ucp_tag_recv_info {
    ucp_tag_t sender_tag;
    size_t length;
} ucp_tag_recv_info_t;

typedef struct ucp_request_param {
    uint32_t op_attr_mask, flags;
    void *request;
    union {
        void (*send)(void *request, ucs_status_t, void *user_data);
        void (*recv)(void *request, ucs_status_t, const ucp_tag_recv_info_t *, void *user_data);
    } cb;
    uint64_t datatype;
    void *user_data, *reply_buffer;
    int memory_type;
    union {
        size_t *length;
        ucp_tag_recv_info_t *tag_info;
    } recv_info;
    void *memh;
} ucp_request_param_t;
