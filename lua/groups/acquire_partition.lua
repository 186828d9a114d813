#!lua flags=allow-oom
-- Make subscribers owners of the partition for their groups, each under an epoch and a new fence (E27, E28, EX11 to EX15). The former
-- owner gets a notice, and every earlier lock ends. `expected`, when given, is the fence that must be in force; `dry` only asks whether
-- the request would succeed. `alone` refuses a subscriber that shares the partition: it would have its credit twice (guarantee 3).
-- ARGV: now revision frontend number retry max_subscribers | subid jid credit sending group epoch expected reason dry alone
-- RETURNS: ok stale gone deleted | ok([epoch fence until_ms credit]) stale superseded partition-owned(epoch) too-many-subscriptions
local refusal = partition.load()
if refusal then return refusal end
local reason
ownership.lapse()

local function answer(who)
  return {'ok', group_epochs.get(who.group), call.partition_fence, who.lease, subscriptions.get(who.subid).limit}
end

-- The owned partition keeps its owner's credit; no other partition is granted any of it.
local function assign(row)
  local new = not subscribing.find(row.subid)
  local qos, batch = subscriptions.parse_sending(row.sending)
  subscribing.put({subid = row.subid, jid = row.jid, limit = tonumber(row.credit), bounces = 0, qos = qos, batch = batch}, new)
  -- An owner has no selector: nobody else would get what it does not select.
  skipped_items.set_selector(row.subid, '')
  lock_end.touch(row.subid)
end

local function attach(row)
  local who = partition_owner.get()
  local known = subscriptions.get(row.subid)
  if row.alone ~= '' and known and not partition_owner.is(row.subid) then return {'superseded'} end
  if row.expected ~= '' and tonumber(row.expected) ~= call.partition_fence then return {'stale'} end
  -- An owner that asks again without an epoch keeps its fence (after a lost reply, or to change its credit). With an epoch it takes the
  -- partition from itself.
  local same = who and who.subid == row.subid and who.group == row.group and row.epoch == ''
  local epoch = same and group_epochs.get(row.group) or group_epochs.grant(row.group, row.epoch)
  if not epoch then return {'partition-owned', group_epochs.get(row.group) or ''} end
  local room = known or redis.call('HLEN', key.subscribers) < tonumber(arg.max_subscribers)
  if not (room and group_epochs.room(row.group)) then return {'too-many-subscriptions'} end
  if row.dry ~= '' then return {'ok'} end
  -- An owner that asks for less credit than it has locks is made owner anew: nothing is locked beyond the credit (guarantee 3).
  local less = same and credit.lock_count(row.subid) > tonumber(row.credit)
  local why = less and 'moved' or row.reason
  if who and (less or not same) then unsubscribing.remove(who.subid, false, why) end
  assign(row)
  if same and not less then
    partition_owner.renew(who)
    return answer(who)
  end
  call.partition_fence, reason = partition.next_number(), why
  redis.call('HSET', key.meta, 'fence', string.format('%d', call.partition_fence))
  group_epochs.put(row.group, epoch, 0)
  partition_owner.put({subid = row.subid, lease = call.partition_deadline, clearing = true, group = row.group})
  return answer(partition_owner.get())
end

local results = budget.each(rows, attach)
-- Once for all rows: an owner that was replaced within the batch has been handed nothing.
if reason then ownership.clear(reason) end
local reply = respond.make(results, dispatch.LIMIT)
if partition_owner.get() and partition_owner.get().clearing then reply[respond.MORE] = 1 end
return reply
