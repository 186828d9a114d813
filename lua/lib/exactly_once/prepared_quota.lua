-- Limits of prepared messages, for one source and for all together (S19, S20).
local prepared_quota = {}

-- Whether so many more bytes fit.
function prepared_quota.has_bytes(name, size)
  return prepared_messages.bytes(prepared_messages.source(name)) + size <= tonumber(arg.source_bytes)
    and prepared_messages.bytes('') + size <= tonumber(arg.total_bytes)
end

-- Whether another message of this size fits.
function prepared_quota.has_room(name, size)
  return prepared_messages.count(name) < tonumber(arg.source_messages)
    and redis.call('ZCARD', key.prepared_names) < tonumber(arg.total_messages)
    and prepared_quota.has_bytes(name, size)
end
