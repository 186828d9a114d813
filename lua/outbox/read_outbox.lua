#!lua flags=allow-oom
-- Read what is due in the outbox and can be delivered by the caller, up to `limit` entries with about `max_bytes`, and count an attempt of
-- each. An item that has no target yet gets its own, or `dead_letters`. Returns the time in ms, then each entry's name, attempt and what it
-- is: of an item its id, publisher, payload, attempts, last holder, reason, key, target and history; of a reply the outcome; of a child how
-- its parent has ended, empty if as the child's before; of others their records, and of a schedule also its item.
-- ARGV: now revision frontend number dead_letters limit max_bytes | held
-- RETURNS: ok(now_ms *entries(name attempt *content)) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local found, bytes, told, held = {call.partition_now}, 0, nil, {}
for _, row in ipairs(rows) do held[row.held] = true end

local function record(entry)
  local line = redis.call('HGET', key.outbox_records, entry)
  return line and {line}, line and #line
end

local READ = {
  item = function(_, position) return outbox_items.read(position, arg.dead_letters, held) end,
  reply = record,
  left = record,
  publish = record,
  child = function(_, name)
    local token = string.match(name, '^[^/]+')
    if token == told then return {''}, 0 end
    local line = redis.call('HGET', key.outbox_records, 'end/' .. token)
    told = line and token
    return line and {line}, line and #line
  end,
  parents = function(_, position)
    local text = dependents.text(position)
    return text and {text}, text and #text
  end,
  schedule = function(_, id)
    local text, item = redis.call('HGET', key.schedules, id), redis.call('HGET', key.schedule_items, id) or ''
    return text and {text, item}, #item
  end,
}

local due, more = outbox.find_due()
for _, entry in ipairs(due) do
  if #found > tonumber(arg.limit) or bytes >= tonumber(arg.max_bytes) or budget.over() then
    more = true
    break
  end
  local kind, name = outbox.split(entry)
  if kind == 'end' then
    awaited.tell_some(name)
    more = true
  else
    local content, size
    if READ[kind] then content, size = READ[kind](entry, name) else content, size = {}, 0 end
    if content then
      bytes = bytes + size
      found[#found + 1] = {entry, outbox.attempt(entry), unpack(content)}
    elseif size == 'held' then
      -- Nothing is read that its target does not take.
      budget.spend(1)
      outbox.attempt(entry)
    else
      -- It is gone: there is nothing to deliver.
      outbox.remove(entry)
      if kind == 'item' then outbox_items.remove(name) end
    end
  end
end
write_buffer.flush()
partition.save()
return respond.results(found, next_due.time(), more and 1 or 0)
