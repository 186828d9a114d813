-- How much may be held: of one source, and of all together (S19, S20).
local quota = {}

-- Whether so many bytes more may be.
function quota.bears(name, size)
  return held.bytes(held.source(name)) + size <= tonumber(arg.source_bytes)
    and held.bytes('') + size <= tonumber(arg.total_bytes)
end

-- Whether another message of this size may be.
function quota.room(name, size)
  return held.count(name) < tonumber(arg.source_messages)
    and redis.call('ZCARD', key.assured_names) < tonumber(arg.total_messages)
    and quota.bears(name, size)
end
