-- Locks items for pull subscriptions, leases and links, and lists what these hold. Must not know who is woken.
-- CALL: bytes = 0, fresh = nil
-- The bytes of what was locked; `fresh`: by token, how many ms an item that is locked for the first time has waited, or -1 at a later
-- attempt.
local receiving = {}

-- Renews the lease of a subscription that asks for it. Returns whether the subscription lasts, and it, where it is known.
function receiving.renew_lease(row)
  if row.lease == '' then return true, nil end
  local subscriber = subscriptions.get(row.subid)
  if not subscriber or not subscriptions.pulls(subscriber) or subscription_expiry.has_ended(row.subid) then return false end
  if row.lease ~= '0' then subscription_expiry.put(row.subid, '+' .. row.lease) end
  return true, subscriber
end

local function take_next(subscriber, want)
  if call.partition_before.selects and not skipped_items.finished() then
    return matching.take(want, function() return {subscriber} end) or {}
  end
  return ready_queue.take(want)
end

-- Takes up to `want` items. What the subscriber gave back itself stays for another that was woken for it.
local function take(subscriber, want)
  if not waiters.is_behind(subscriber.subid) then return take_next(subscriber, want) end
  local kept, left, before = {}, {}, nil
  repeat
    before = #left
    for _, entry in ipairs(take_next(subscriber, want - #kept)) do
      local into = entry.past.holders[1] == subscriber.subid and left or kept
      into[#into + 1] = entry
    end
  until #left == before or #kept == want or budget.over()
  for _, entry in ipairs(left) do
    if entry.group then key_limits.put_back(entry) end
    write_buffer.add('ZADD', scheduling.place(entry.position))
  end
  write_buffer.flush()
  return kept
end

local function lock(entry, subscriber, deadline)
  local token, attempt = dispatch.lock(entry, subscriber, inflight.NOBODY, deadline)
  local published = positions.split(entry.position)
  call.receiving_fresh = call.receiving_fresh or {}
  call.receiving_fresh[token] = attempt == 1 and math.max(0, call.partition_now - math.max(published, scheduling.of(entry).after)) or -1
  call.receiving_bytes = call.receiving_bytes + #entry.body
end

-- Locks up to `most` items, of up to `max_bytes` with those of other rows. Returns whether the subscriber could take more, and how many
-- items it took; each takes one of the `names` of references, if there are any.
function receiving.take(row, subscriber, names, most, max_bytes)
  local held = credit.lock_count(row.subid)
  local limit = row.limit == '*' and subscriber.limit or tonumber(row.limit)
  if row.references ~= '' then limit = held + (references.is_late(row.deadline) and 0 or #names) end
  local deadline = row.lock_ms == '' and call.partition_deadline or call.partition_now + tonumber(row.lock_ms)
  subscriber = {subid = row.subid, jid = row.jid, limit = limit, held = held, qos = 'pulled', collection = row.collection, whose = '',
    references = row.references ~= '' and names or nil}
  most, max_bytes = math.min(limit - held, most), max_bytes - call.receiving_bytes
  local made = dispatch.hand_out(most, max_bytes, function(want) return take(subscriber, want) end, function(items)
    for _, entry in ipairs(items) do lock(entry, subscriber, string.format('%d', deadline)) end
  end)
  return subscriber.held < limit, made
end

local function describe(flight, entry)
  local attempt, token = tonumber(flight.attempt), tonumber(flight.token)
  local tries = attempt_history.count(flight.position, attempt)
  return {flight.item, token, tries, tonumber(redis.call('ZSCORE', key.lock_deadlines, flight.position) or 0), entry.by, entry.body,
    entry.key, tonumber((positions.split(entry.log_id))), attempt - tries, outcomes.are_wanted(flight.position) and 1 or 0,
    call.receiving_fresh and call.receiving_fresh[token]}
end

-- Returns what a subscription holds after the token `after`, and 1 if there is more.
function receiving.list(row, most, max_bytes)
  local found, size = {}, 0
  local places = held_locks.after(row.subid, tonumber(row.after), most + 1)
  budget.spend(0.6 * #places)
  for i, flight in ipairs(inflight.get_many(places)) do
    local entry = flight and i <= most and size < max_bytes and log_entries.get(flight.log_id)
    if flight and not entry then return found, 1 end
    if entry then
      size = size + #entry.body
      found[#found + 1] = describe(flight, entry)
    end
  end
  return found, 0
end

-- Returns the answer to a row: the end of the lease, items, whether there are more, how many are held here, the credit, the selector,
-- about how many more may go out, whether the partition has an owner, the time, and references without a lock.
function receiving.answer(row, found, more, subscriber, waits, names)
  return {'ok', subscription_expiry.of(row.subid), found, more, credit.lock_count(row.subid), subscriber and subscriber.limit or 0,
    selectors.line(row.subid) or '', waits, partition_owner.get() and 1 or 0, call.partition_now, table.concat(names, ' ')}
end

-- Returns the answer to a row that ends a lock and asks for more.
local function next_ones(ending, most, lease)
  local asked = {subid = string.match(ending.subids, '^%S+'), jid = ending.sender, lease = lease, limit = '*', lock_ms = '',
    after = call.partition_token, references = '', collection = ''}
  local lasts, subscriber = receiving.renew_lease(asked)
  if not lasts then return {'lease-over'} end
  if most > 0 and not (call.partition_options.paused or partition_owner.get()) then
    if not receiving.take(asked, subscriber, nil, most, dispatch.BYTES) then waiters.fill(asked.subid) end
  end
  local found, more = receiving.list(asked, most, dispatch.BYTES)
  return receiving.answer(asked, found, more, subscriber, 0, {})
end

-- Adds to the results of rows that end locks what those ask for by `next`, `MOST LEASE_MS`: to lock so many more items for the pull
-- subscription that held the lock, within its credit, and to renew its lease.
function receiving.add_next(rows, results)
  for i = 1, #results do
    local row = rows[i]
    if row.next ~= '' then
      local most, lease = string.match(row.next, '^(%d+) (%d+)$')
      results[i] = {'received', results[i], next_ones(row, tonumber(most), lease)}
    end
  end
  return results
end
