-- What a publisher asks for its item: not before a time, before or after others, not from a time on. The entry says it as `after
-- priority ends`, in ms and 0 for none. What is delayed keeps its place in the log and is in `delayed` as well until its time has
-- come; `ends` has those that wait and end. Priorities are ranks, 9 less the priority, so that what goes first sorts first: in
-- `ranked` stands every item of another than the usual, padded so that those of a rank sort as the log does; with `AWAY` more while
-- it is in flight, delayed or elsewhere. The cursor passes over them.
local hints = {NONE = {after = 0, ends = 0}, USUAL = 5, LAST = 9, AWAY = 10}

-- What an entry or a row says; `rank` nil for the usual one.
function hints.of(entry)
  if entry.hints == '' then return hints.NONE end
  if not entry.asks then
    local after, priority, ends = string.match(entry.hints, '^(%d+) (%d) (%d+)$')
    local rank = hints.LAST - priority
    entry.asks = {after = tonumber(after), rank = rank ~= hints.USUAL and rank or nil, ends = tonumber(ends)}
  end
  return entry.asks
end

-- Makes of what a row brings, `delay priority ttl`, what its entry says. Order within a group goes before any priority.
function hints.begin(row)
  local delay, priority, ttl = string.match(row.hints, '^(%d+) (%d) (%d+)$')
  if call.partition_ordered and row.key ~= '' then priority = hints.LAST - hints.USUAL end
  local function from_now(ms) return tonumber(ms) > 0 and call.partition_now + ms or 0 end
  row.hints = string.format('%d %d %d', from_now(delay), priority, from_now(ttl))
end

function hints.rests(entry)
  return hints.of(entry).after > call.partition_now
end

-- Nil of an item of the usual priority.
function hints.rank(position)
  local score = redis.call('ZSCORE', key.ranked, positions.padded(position))
  return score and score % hints.AWAY or nil
end

-- The ranks that go before what is usual, and after it: the most urgent first, or those that give way to others.
function hints.first(yielding)
  if yielding then return hints.LAST, hints.USUAL + 1 end
  return 0, hints.USUAL - 1
end

function hints.last(yielding)
  if yielding then return hints.USUAL - 1, 0 end
  return hints.USUAL + 1, hints.LAST
end

-- Whether anything stands there of these ranks.
function hints.any(first, last)
  return redis.call('ZCOUNT', key.ranked, first, last) > 0
end

-- The position that a padded text ends with.
function hints.unpadded(text)
  local ms, seq = string.sub(text, -40, -21), string.sub(text, -20)
  return string.match(ms, '^0*(%d+)$') .. '-' .. string.match(seq, '^0*(%d+)$')
end

-- Takes the positions of up to `count` of these ranks, or of the first of them that has any when they come down.
function hints.draw(count, first, last)
  local found = redis.call('ZRANGEBYSCORE', key.ranked, first, math.max(first, last), 'WITHSCORES', 'LIMIT', 0, count)
  if first > last and #found == 0 then return hints.draw(count, first - 1, last) end
  local out = {}
  for i = 1, #found, 2 do
    redis.call('ZADD', key.ranked, found[i + 1] + hints.AWAY, found[i])
    out[#out + 1] = hints.unpadded(found[i])
  end
  return out
end

-- Takes up what is new; gives whether it stands somewhere beside the log now.
function hints.enter(position, entry)
  local asks, rests = hints.of(entry), hints.rests(entry)
  hints.stay(position, entry)
  if asks.rank then
    writes.add('ZADD', key.ranked, asks.rank + (rests and hints.AWAY or 0), positions.padded(position))
  end
  if rests then writes.add('ZADD', key.delayed, asks.after, position) end
  return rests or asks.rank ~= nil
end

-- The end of an item that is handed out is not looked for; of one that comes back it is.
function hints.leave(position, entry)
  if hints.of(entry).ends > 0 then writes.add('ZREM', key.ends, position) end
end

function hints.stay(position, entry)
  if hints.of(entry).ends > 0 then writes.add('ZADD', key.ends, hints.of(entry).ends, position) end
end

-- It is in the queue no more.
function hints.forget(position)
  writes.add('ZREM', key.ranked, positions.padded(position))
  writes.add('ZREM', key.ends, position)
end
