-- The locks that a queue has made under references of collections above it. `references` has both directions: `=POSITION` -> reference,
-- sending, collection and subid of the subscription, and reference -> position.
-- CALL: freed = {}
-- `freed` are references whose locks end in this call.
local references = {LASTS_MS = 3000}

-- Whether a receive is too late by the queue's clock, or so early that this clock went back since the queue asked: one may come for `LASTS_MS`
-- before its deadline.
function references.is_late(deadline)
  return call.partition_now >= tonumber(deadline) or call.partition_now < tonumber(deadline) - references.LASTS_MS
end

-- Notes the lock of a subscriber under the next of its references. `whose` is the subid where the JID may have several.
function references.note(position, subscriber)
  partition.turn_on('referenced')
  if subscriber.whose ~= '' then subscription_ids.note(subscriber.first, subscriber.subid) end
  local name = table.remove(subscriber.references)
  write_buffer.add('HSET', key.references, name, position)
  write_buffer.add('HSET', key.references, '=' .. position,
    name .. ' ' .. subscriptions.sending(subscriber) .. ' ' .. subscriber.collection .. ' ' .. subscriber.whose)
end

-- Returns the reference of a lock; nil for none.
function references.of(flight)
  if not call.partition_before.referenced then return nil end
  if flight.reference == nil then
    local line = redis.call('HGET', key.references, '=' .. flight.position)
    local name, sending, collection, whose = string.match(line or '', '^(%S+) (%S+) (%S+) (%d*)$')
    flight.reference = name and {name = name, sending = sending, collection = collection, whose = whose, how = 'ended'} or false
  end
  return flight.reference or nil
end

-- Returns the position of the lock under a reference; nil for none.
function references.position(name)
  return call.partition_before.referenced and redis.call('HGET', key.references, name) or nil
end

-- Whether a lock under a reference is over, and only not swept yet: the collection may have lent its credit again.
function references.has_ended(flight)
  return references.of(flight) and tonumber(redis.call('ZSCORE', key.lock_deadlines, flight.position) or 0) <= call.partition_now
end

-- Frees the reference of a lock that ends.
function references.free(flight)
  local reference = references.of(flight)
  if not reference then return end
  write_buffer.add('HDEL', key.references, reference.name, '=' .. flight.position)
  call.references_freed[#call.references_freed + 1] = reference
end

-- Returns the collection and the subid of a lock's subscription, for a notice; the subid only where a JID may have several.
function references.describe(flight)
  local reference = references.of(flight)
  if reference then return reference.collection, reference.whose ~= '' and reference.whose or nil end
  if call.partition_before.multi then return '', flight.subid end
end

-- Returns the same for a delivery: both after each other, with a blank between; empty for neither.
function references.whose(reference, subid)
  if reference then return reference.collection .. ' ' .. reference.whose end
  return call.partition_before.multi and ' ' .. subid or ''
end

-- Tells the collections which references are free, and how each has ended.
function references.tell()
  if #call.references_freed == 0 then return end
  local freed, order = {}, {}
  for _, each in ipairs(call.references_freed) do
    if not freed[each.collection] then
      freed[each.collection], order[#order + 1] = {}, each.collection
    end
    local told = freed[each.collection]
    told[#told + 1] = each.name .. ' ' .. each.how
  end
  for _, collection in ipairs(order) do notices.tell({'freed', collection, table.concat(freed[collection], ' ')}) end
end
