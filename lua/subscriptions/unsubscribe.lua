#!lua flags=allow-oom
-- Remove subscriptions. With `release` also give back their locks, a bounded part per call (the row returns how many are left). `which`
-- selects subscriptions of a JID: the one that is `named`, or else the only one; `this` one; or `all`.
-- The row also returns whether others are left, and the names of those that ended. With `told` the subscriber is sent a
-- notice of each lock that ends. With `lapsed` a subscription ends only if its lease is still over. With `kept` the epoch of an owned partition outlasts the owner (EX11); `reason` is sent with the notice
-- of the lost partition. With a `group` only the owner for that group leaves.
-- ARGV: now revision frontend number retry | subid named which release kept reason lapsed told group
-- RETURNS: ok stale gone deleted | ok(locks others subids) not-subscribed(locks others subids) superseded subid-required subid-invalid
local refusal = partition.load()
if refusal then return refusal end

local function meant(row)
  if row.which == 'all' then return subscription_ids.family(row.subid) end
  if row.which == 'this' then return {row.subid} end
  local subid, refused = subscription_ids.choose(row.subid, row.named)
  -- A JID that is unknown here may own another partition.
  if not subid and refused[1] == 'not-subscribed' then return {row.subid} end
  return {subid}, refused
end

-- Returns whether a JID has subscriptions or locks here under other subids than these.
local function others(row, those)
  local past = {}
  for _, subid in ipairs(those) do past[subid] = true end
  for _, subid in ipairs(subscription_ids.family(row.subid)) do
    if not past[subid] and (subscriptions.get(subid) or credit.lock_count(subid) > 0) then return 1 end
  end
  return 0
end

local function is_superseded(row)
  if row.lapsed == '1' and subscriptions.get(row.subid) and not subscription_expiry.has_ended(row.subid) then return true end
  return row.group ~= '' and not (partition_owner.is(row.subid) and partition_owner.get().group == row.group)
end

local function end_subscriptions(row, those)
  local ended, left, room = {}, 0, unsubscribing.CHUNK
  for _, subid in ipairs(those) do
    if unsubscribing.remove(subid, row.kept ~= '', row.reason ~= '' and row.reason) then ended[#ended + 1] = subid end
    if row.release == '1' then
      local why = row.told == '1' and unsubscribing.WITHDRAWN or row.lapsed == '1' and 'lapsed' or 'unavailable'
      local _, gone_back = unsubscribing.release(subid, 'released', why, room)
      room = room - gone_back
    end
    -- What it holds through a collection is on its way back.
    if not (call.partition_options.collects and row.release == '1') then left = left + credit.lock_count(subid) end
  end
  return {#ended > 0 and 'ok' or 'not-subscribed', left, others(row, those), ended}
end

local results = budget.each(rows, function(row)
  local those, refused = meant(row)
  return refused or is_superseded(row) and {'superseded'} or end_subscriptions(row, those)
end)
local reply = respond.make(results, math.max(call.lock_end_freed, 1))
if call.unsubscribing_more then reply[respond.MORE] = 1 end
return reply
