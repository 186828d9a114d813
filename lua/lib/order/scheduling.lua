-- Delay, priority and time to live of an item. The entry has them as `delay_until priority expires`, in ms and 0 for none, followed by
-- `after` if the item was published to wait for others (`dependents`). A delayed item
-- keeps its place in the log and is in `delayed` until it is due; `expirations` has the waiting items that expire. A rank is 9 less the
-- priority, so that the most urgent sorts first. `by_priority` has every item with another priority than the default, padded so that
-- items of one rank sort as the log does; AWAY is added to the rank while the item is in flight, delayed or elsewhere. The cursor skips
-- these items.
local scheduling = {NONE = {after = 0, ends = 0}, USUAL = 5, LAST = 9, AWAY = 10}

-- Parses the hints of an entry or a row; `rank` is nil for the default. The cursor passes over an entry with `beside`.
function scheduling.of(entry)
  if entry.hints == '' then return scheduling.NONE end
  if not entry.asks then
    local after, priority, ends, waits = string.match(entry.hints, '^(%d+) (%d) (%d+)(.*)$')
    local rank = scheduling.LAST - priority
    entry.asks = {after = tonumber(after), rank = rank ~= scheduling.USUAL and rank or nil, ends = tonumber(ends), waits = waits ~= ''}
    entry.asks.beside = entry.asks.rank or entry.asks.waits
  end
  return entry.asks
end

-- Converts a row's request, `delay priority ttl`, perhaps who is told of the item's end, and after a zero byte a record of `dependents`, into
-- the form of entries. Order within a group goes before any priority.
function scheduling.read_request(row)
  local delay, priority, ttl, reply, parents = string.match(row.hints, '^(%d+) (%d) (%d+) ?(%Z*)%z?(.*)$')
  row.parents = parents ~= '' and parents or nil
  if reply ~= '' then
    row.reply, row.hints = reply, ''
    if not row.parents and delay == '0' and priority + scheduling.USUAL == scheduling.LAST and ttl == '0' then return end
  end
  if call.partition_options.ordered and row.key ~= '' then priority = scheduling.LAST - scheduling.USUAL end
  local function from_now(ms) return tonumber(ms) > 0 and call.partition_now + ms or 0 end
  row.hints = string.format(row.parents and '%d %d %d after' or '%d %d %d', from_now(delay), priority, from_now(ttl))
end

function scheduling.is_delayed(entry)
  return scheduling.of(entry).after > call.partition_now
end

-- Returns nil for an item of the default priority.
function scheduling.rank(position)
  local score = redis.call('ZSCORE', key.by_priority, positions.pad(position))
  return score and score % scheduling.AWAY or nil
end

-- Returns the index of an item that may go out and that the cursor will not reach, as arguments of ZADD.
function scheduling.place(position)
  local rank = call.partition_before.hinted and scheduling.rank(position)
  if rank then return key.by_priority, rank, positions.pad(position) end
  return key.ready, positions.place(position), position
end

-- Whether an item of these ranks is waiting.
function scheduling.has_ranks(first, last)
  return redis.call('ZCOUNT', key.by_priority, first, last) > 0
end

-- Returns the position at the end of a padded text.
function scheduling.unpad(text)
  local ms, seq = string.sub(text, -40, -21), string.sub(text, -20)
  return string.match(ms, '^0*(%d+)$') .. '-' .. string.match(seq, '^0*(%d+)$')
end

-- Takes up to `count` positions of these ranks.
function scheduling.take(count, first, last)
  local found = redis.call('ZRANGEBYSCORE', key.by_priority, first, last, 'WITHSCORES', 'LIMIT', 0, count)
  local out = {}
  for i = 1, #found, 2 do
    redis.call('ZADD', key.by_priority, found[i + 1] + scheduling.AWAY, found[i])
    out[#out + 1] = scheduling.unpad(found[i])
  end
  return out
end

-- Indexes a new item; returns whether it is in an index beside the log now.
function scheduling.add(position, entry)
  local asks = scheduling.of(entry)
  local rests = asks.waits or scheduling.is_delayed(entry)
  scheduling.start_expiry(position, entry)
  if asks.rank then
    write_buffer.add('ZADD', key.by_priority, asks.rank + (rests and scheduling.AWAY or 0), positions.pad(position))
  end
  if rests and not asks.waits then
    rare_keys.add('ZADD', key.delayed, asks.after, position)
  end
  return rests or asks.rank ~= nil
end

-- An item that is handed out does not expire, until it comes back.
function scheduling.stop_expiry(position, entry)
  if scheduling.of(entry).ends > 0 then write_buffer.add('ZREM', key.expirations, position) end
end

function scheduling.start_expiry(position, entry)
  if scheduling.of(entry).ends > 0 then write_buffer.add('ZADD', key.expirations, scheduling.of(entry).ends, position) end
end

-- Removes the index entries of an item that has left the queue.
function scheduling.remove(position)
  write_buffer.add('ZREM', key.by_priority, positions.pad(position))
  write_buffer.add('ZREM', key.expirations, position)
end
