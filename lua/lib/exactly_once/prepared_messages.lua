-- Messages between the two steps of an assured delivery. A name is the sender's bare JID, its resource and the msgId with zero bytes
-- between; a record begins `nonce digest `. EMPTY is the record of a reservation, which has no message yet.
local prepared_messages = {TIDY = 20, EMPTY = '- - '}

function prepared_messages.source(name)
  return string.sub(name, 1, string.find(name, '\0', 1, true) - 1)
end

-- Only here the byte counts change, together with the sets, so they always agree.
local function count_bytes(name, bytes)
  for _, whose in ipairs({prepared_messages.source(name), ''}) do
    if redis.call('HINCRBY', key.prepared_bytes, whose, bytes) <= 0 then redis.call('HDEL', key.prepared_bytes, whose) end
  end
end

function prepared_messages.keep(now, name, record)
  redis.call('HSET', key.prepared, name, record)
  redis.call('ZADD', key.prepared_since, now, name)
  redis.call('ZADD', key.prepared_names, 0, name)
  count_bytes(name, #name + #record)
end

function prepared_messages.drop(name, record)
  redis.call('HDEL', key.prepared, name)
  redis.call('ZREM', key.prepared_since, name)
  redis.call('ZREM', key.prepared_names, name)
  redis.call('ZREM', key.deliveries_begun, name)
  count_bytes(name, -#name - #record)
end

-- Drops messages that their senders have forgotten, a few at a time; a later request is answered that the message is unknown (SX8).
function prepared_messages.tidy(now)
  local old = redis.call('ZRANGEBYSCORE', key.prepared_since, '-inf', now - tonumber(arg.window_ms), 'LIMIT', 0, prepared_messages.TIDY)
  for _, name in ipairs(old) do prepared_messages.drop(name, redis.call('HGET', key.prepared, name)) end
end

function prepared_messages.bytes(whose)
  return tonumber(redis.call('HGET', key.prepared_bytes, whose) or 0)
end

-- Counts by name: the names of one source are adjacent, whatever its resources (S19, SX11).
function prepared_messages.count(name)
  local whose = prepared_messages.source(name)
  return redis.call('ZLEXCOUNT', key.prepared_names, '[' .. whose .. '\0', '(' .. whose .. '\1')
end
