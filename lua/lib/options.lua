-- The options of the node, as its partitions keep them in `meta`: read once in a call, with their types. An option that is not stored has
-- its default value.
local options = {RESULT_MS = 3600000}

-- Reads how an item that was not acknowledged rests: times in ms, a factor and a share.
local function retry_delay(rule)
  local first, longest, backoff, jitter = string.match(rule, '^(%S+) (%S+) (%S+) (%S+)$')
  return {first = tonumber(first), longest = tonumber(longest), backoff = tonumber(backoff), jitter = tonumber(jitter)}
end

-- `collects`: a collection has no partitions. `several`: it has more than one. `keep_…` are the limits of the log as a stream (0: none).
-- `hand_out` and `by_key` are bounds, nil for none. A paused node hands nothing out; its locks may still be ended.
function options.read(meta)
  local keep_ms, keep_items, keep_bytes = tonumber(meta.keep_ms or 0), tonumber(meta.keep_items or 0), tonumber(meta.keep_bytes or 0)
  return {
    lock_ms = tonumber(meta.lock_ms), max_deliveries = tonumber(meta.max_deliveries), dead_letters = meta.dead_letters ~= '0',
    retry_delay = meta.retry_delay and retry_delay(meta.retry_delay), result_ms = tonumber(meta.result_ms or options.RESULT_MS),
    collects = meta.partitions == '0', several = meta.partitions ~= nil and meta.partitions ~= '0',
    ordered = meta.ordered == '1', paused = meta.paused == '1', log_only = meta.queueing == '0', journal_max = meta.journal_max,
    keep_ms = keep_ms, keep_items = keep_items, keep_bytes = keep_bytes, keeps = keep_ms + keep_items + keep_bytes > 0,
    fair = meta.fair, weighted = meta.weighted ~= nil,
    hand_out = meta.limits and rate_limit.bounds(meta.limits), by_key = meta.by_key and rate_limit.bounds(meta.by_key),
  }
end
